"""`statehold quarantine`: states that are out of service, why, and what to do with them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final

from app import sizes
from app.api.schemas.admin import StateDetail
from app.api.schemas.quarantine import QuarantineList, Verification
from app.commands import arguments as take
from app.commands.asking import agreed
from app.commands.errors import Failed, WrongUse
from app.commands.paging import gathered, of_server, say_more
from app.commands.remote import Remote, connect
from app.commands.showing import age, as_json, counted, safe, say, table
from app.commands.states import named, path, show_detail, show_evidence
from app.settings import Settings

NAME = "quarantine"
HELP = "list, show, add, verify, release, purge and download quarantined states"

_DAMAGED_HEADER: Final = "statehold-damaged-blocks"
_MANIFEST_HEADER: Final = "statehold-manifest"
_PROVING_SECONDS: Final = 3600.0  # reads every byte of a state


def arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    actions = parser.add_subparsers(dest="action", required=True)
    listing = take.action(actions, "list", "list quarantined states, newest first")
    take.of_namespace(listing)
    listing.add_argument("--class", dest="failure_class", metavar="CLASS", help="of this class")
    take.paging(listing)
    take.offline(listing)
    show = _of_state(actions, "show", "show a quarantined state with its evidence")
    take.offline(show)
    add = _of_state(actions, "add", "take a live state out of service")
    add.add_argument("--reason", required=True, help="why; it is kept as evidence")
    _of_state(actions, "verify", "read and prove every byte of a state, live or quarantined")
    _of_state(actions, "release", "put a state back into service if every byte of it is proven")
    take.sure(_of_state(actions, "purge", "remove a quarantined state with its evidence"))
    download = _of_state(actions, "download", "save a component as far as it can be read")
    download.add_argument("--component", metavar="NAME", help="which, if the state has several")
    download.add_argument(
        "--output", "-o", type=Path, required=True, metavar="FILE", help="a new file, mode 0600"
    )
    download.add_argument("--force", action="store_true", help="replace the file if it is there")


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Run the action; 1 if a state that was verified is not intact."""
    if options.action in ("list", "show") and options.offline:
        return _offline(settings, options)
    return _ACTIONS[options.action](connect(settings, options), options)


def _list(server: Remote, options: argparse.Namespace) -> int:
    pages = of_server(server, "/admin/v1/quarantine", QuarantineList, _query(options))
    found = gathered(pages, "states", options.limit, options.after)
    as_json(found) if options.json else _show_list(found)
    return 0


def _show(server: Remote, options: argparse.Namespace) -> int:
    return _tell(server.get(path(options.state_id), StateDetail), options)


def _add(server: Remote, options: argparse.Namespace) -> int:
    body = {"reason": options.reason}
    where = path(options.state_id, "quarantine")
    found = server.call("POST", where, StateDetail, body=body)
    return _done(found, options, "is out of service")


def _verify(server: Remote, options: argparse.Namespace) -> int:
    where = path(options.state_id, "verify")
    found = server.call("POST", where, Verification, wait_s=_PROVING_SECONDS)
    if options.json:
        as_json(found)
    else:
        size = sizes.about(found["verified_bytes"])
        said = "every byte is as recorded" if found["intact"] else "it is not as recorded"
        print(f"{safe(found['state_id'])}: {said} ({size} read in {found['seconds']:.1f} s)")
        if found["evidence"] is not None and not found["intact"]:
            show_evidence(found["evidence"])
    return 0 if found["intact"] else 1


def _release(server: Remote, options: argparse.Namespace) -> int:
    where = path(options.state_id, "release")
    found = server.call("POST", where, StateDetail, wait_s=_PROVING_SECONDS)
    return _done(found, options, "is back in service")


def _purge(server: Remote, options: argparse.Namespace) -> int:
    if not agreed(options, f"remove {options.state_id} and its evidence for good?"):
        return 1
    server.call("DELETE", path(options.state_id))
    if options.json:
        as_json({"purged": options.state_id})
    else:
        print(f"{safe(options.state_id)} is gone")
    return 0


def _download(server: Remote, options: argparse.Namespace) -> int:
    output: Path = options.output
    if output.exists() and not options.force:
        raise WrongUse(f"{output} is there already: --force replaces it")
    name = options.component or _only_component(server.get(path(options.state_id), StateDetail))
    with _new_file(output, replace=options.force) as write:
        headers = server.download(path(options.state_id, "components", name, "raw"), write)
    damaged = headers.get(_DAMAGED_HEADER)
    sealed = headers.get(_MANIFEST_HEADER) != "damaged"
    size = output.stat().st_size
    if options.json:
        as_json(
            {
                "state_id": options.state_id,
                "component": name,
                "file": str(output),
                "bytes": size,
                "damaged_blocks": damaged,
                "manifest_intact": sealed,
            }
        )
    else:
        print(f"{safe(output)}: {counted(size, 'byte')} of {safe(name)}")
    if damaged:
        say(f"blocks {damaged} could not be read: zeros stand in their place")
    if not sealed:
        say(
            "what is said of its blocks is not what was recorded: bytes may be missing or misplaced"
        )
    return 0


def _offline(settings: Settings, options: argparse.Namespace) -> int:
    from app.commands import offline

    with offline.stopped(settings) as store:
        if options.action == "show":
            return _tell(offline.state(store, options.state_id), options)
        with offline.quarantined(store, _query(options)) as pages:
            listed = gathered(pages, "states", options.limit, options.after)
    as_json(listed) if options.json else _show_list(listed)
    return 0


_ACTIONS = {
    "list": _list,
    "show": _show,
    "add": _add,
    "verify": _verify,
    "release": _release,
    "purge": _purge,
    "download": _download,
}


def _of_state(actions: take.Actions, name: str, summary: str) -> argparse.ArgumentParser:
    parser = take.action(actions, name, summary)
    parser.add_argument("state_id", metavar="ID")
    return parser


def _query(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "namespace": options.namespace,
        "tenant": options.tenant,
        "class": options.failure_class,
    }


def _tell(found: Mapping[str, Any], options: argparse.Namespace) -> int:
    if found["status"] != "quarantined":
        say("it is not quarantined (state_not_quarantined)")
        return 1
    as_json(found) if options.json else show_detail(found)
    return 0


def _done(found: Mapping[str, Any], options: argparse.Namespace, what: str) -> int:
    as_json(found) if options.json else print(f"{safe(found['state_id'])} {what}")
    return 0


def _show_list(found: Mapping[str, Any]) -> None:
    table(
        ("STATE", "CLASS", "WHERE", "BY", "SINCE", "SIZE", "NAMESPACE", "REASON"),
        [
            (
                row["state_id"],
                row["evidence"]["failure_class"],
                _where(row["evidence"]),
                row["evidence"]["reported_by"],
                age(row["evidence"]["at_ms"]),
                sizes.about(row["logical_bytes"]),
                named(row),
                row["evidence"]["reason"],
            )
            for row in found["states"]
        ],
        right="SINCE,SIZE",
    )
    say_more(found)


def _where(evidence: Mapping[str, Any]) -> str:
    """The component, and the block of it."""
    name, block = evidence["component"], evidence["first_bad_block"]
    return "" if name is None else str(name) if block is None else f"{name}[{block}]"


def _only_component(found: Mapping[str, Any]) -> str:
    names = [part["name"] for part in found["components"]]
    if len(names) != 1:
        raise WrongUse(f"say which with --component: {', '.join(names)}")
    return str(names[0])


@contextmanager
def _new_file(output: Path, *, replace: bool) -> Iterator[Callable[[bytes], None]]:
    """To write into a file that has its name only once it is whole; others cannot read it.

    Raises:
        Failed: it cannot be written, or is there.
    """
    with _writing(output):
        file = NamedTemporaryFile(dir=output.parent, prefix=".statehold-", delete=False)  # noqa: SIM115
    partial = Path(file.name)

    def write(piece: bytes) -> None:
        with _writing(output):
            file.write(piece)

    try:
        with file:
            yield write
        with _writing(output):
            if replace:
                partial.rename(output)
            else:
                os.link(partial, output)  # unlike a rename never in the place of another
    finally:
        with suppress(FileNotFoundError):
            partial.unlink()


@contextmanager
def _writing(output: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Failed(f"{output} cannot be written: {error.strerror}") from error
