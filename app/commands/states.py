"""`statehold states`: what is held, and what is to stay."""

from __future__ import annotations

import argparse
import base64
import struct
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from app import sizes
from app.api.schemas.admin import StateDetail, StateList
from app.api.schemas.evictions import PinInfo, PinList
from app.api.schemas.tree import NodeStep
from app.commands import arguments as take
from app.commands.errors import Refused, WrongUse
from app.commands.paging import gathered, of_server, say_more
from app.commands.remote import Remote, connect
from app.commands.showing import age, as_json, left, moment, pairs, safe, say, table, tenant
from app.settings import Settings

NAME = "states"
HELP = "list, show, pin and unpin states"

STATUSES = ("recording", "live", "quarantined")
KINDS = ("full_state", "kv_recurrent", "recurrent_only", "kv")
SORTS = ("created", "touched", "size", "tokens", "hits")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    actions = parser.add_subparsers(dest="action", required=True)
    listing = take.action(actions, "list", "list states")
    filters(listing)
    take.paging(listing)
    take.offline(listing)
    show = take.action(actions, "show", "show a state with its components and evidence")
    show.add_argument("state_id", metavar="ID")
    take.offline(show)
    pin = take.action(actions, "pin", "keep a state from being evicted")
    pin.add_argument("state_id", metavar="ID")
    pin.add_argument("--reason", required=True, help="why; others read it")
    pin.add_argument(
        "--ttl", type=take.duration, metavar="DURATION", help="for so long, as in 7d; else for ever"
    )
    unpin = take.action(actions, "unpin", "let a pinned state be evicted again")
    unpin.add_argument("state_id", metavar="ID")
    pins = take.action(actions, "pins", "list what is pinned, and how much may be")
    take.paging(pins)


def filters(parser: argparse.ArgumentParser) -> None:
    """Which states, in which order."""
    take.of_namespace(parser)
    parser.add_argument("--status", choices=STATUSES)
    parser.add_argument("--kind", choices=KINDS)
    for name, summary in (
        ("--min-age", "recorded at least so long ago, as in 12h"),
        ("--max-age", "recorded at most so long ago"),
        ("--untouched-for", "not used for so long"),
    ):
        parser.add_argument(name, type=take.duration, metavar="DURATION", help=summary)
    for name, summary in (
        ("--min-size", "of at least so many bytes as recorded, as in 64MiB"),
        ("--max-size", "of at most so many bytes"),
    ):
        parser.add_argument(name, type=take.size, metavar="SIZE", help=summary)
    parser.add_argument(
        "--under",
        type=_tokens,
        metavar="IDS",
        help="whose tokens begin with these ids, as in 1,2,3; needs --namespace",
    )
    pinned = parser.add_mutually_exclusive_group()
    pinned.add_argument("--pinned", action="store_true", default=None, help="only pinned ones")
    pinned.add_argument(
        "--not-pinned", dest="pinned", action="store_false", help="only those that are not"
    )
    parser.add_argument("--sort", choices=SORTS, help="by what; created if not said")
    parser.add_argument("--order", choices=("asc", "desc"), help="asc if not said")


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Run the action; returns the exit code."""
    if options.action in ("list", "show") and options.offline:
        return _offline(settings, options)
    server = connect(settings, options)
    return _ACTIONS[options.action](server, options)


def query(options: argparse.Namespace) -> dict[str, Any]:
    """The filters as the route takes them."""
    if options.under is not None and options.namespace is None:
        raise WrongUse("--under needs --namespace: the same ids mean something else in each")
    return {
        "namespace": options.namespace,
        "tenant": options.tenant,
        "status": options.status,
        "kind": options.kind,
        "min_age_s": options.min_age,
        "max_age_s": options.max_age,
        "untouched_for_s": options.untouched_for,
        "min_bytes": options.min_size,
        "max_bytes": options.max_size,
        "under_b64": options.under,
        "pinned": options.pinned,
        "sort": options.sort,
        "order": options.order,
    }


def path(state_id: str, *rest: str) -> str:
    """The route of a state."""
    return "/".join(("/admin/v1/states", *(quote(part, safe="") for part in (state_id, *rest))))


def show_list(found: Mapping[str, Any]) -> None:
    """States as a table."""
    table(
        ("STATE", "STATUS", "KIND", "TOKENS", "SIZE", "HITS", "AGE", "UNUSED", "PIN", "NAMESPACE"),
        [
            (
                row["state_id"],
                row["status"],
                row["kind"],
                f"{row['token_count']:,}",
                sizes.about(row["logical_bytes"]),
                f"{row['hits']:,}",
                age(row["created_at_ms"]),
                age(row["touched_at_ms"]),
                _pin_left(row.get("pin")),
                named(row),
            )
            for row in found["states"]
        ],
        right="TOKENS,SIZE,HITS,AGE,UNUSED",
    )
    say_more(found)


def show_detail(row: Mapping[str, Any]) -> None:
    """A state with all that is known of it."""
    pin = row.get("pin")
    pairs(
        [
            ("state", row["state_id"]),
            ("page", row["page_id"]),
            ("namespace", row["namespace"]),
            ("tenant", tenant(row["tenant"])),
            ("status", row["status"]),
            ("kind", row["kind"]),
            ("tokens", f"{row['token_count']:,}"),
            ("size", _exactly(row["logical_bytes"])),
            ("hits", f"{row['hits']:,}"),
            ("recorded", f"{moment(row['created_at_ms'])} ({age(row['created_at_ms'])} ago)"),
            ("last used", f"{moment(row['touched_at_ms'])} ({age(row['touched_at_ms'])} ago)"),
            ("pinned", None if pin is None else f"{_until(pin)}: {pin['reason']}"),
        ]
    )
    for part in row["components"]:
        digest = part["digest"] or part["blocks_digest"] or ""
        print(f"  {safe(part['name'])}  {_exactly(part['bytes'])}  {safe(digest)}".rstrip())
    if row["evidence"] is not None:
        print("evidence")
        show_evidence(row["evidence"])


def show_evidence(evidence: Mapping[str, Any]) -> None:
    """Why a state is out of service; what is not known is left out."""
    pairs(
        [
            (f"  {key.removesuffix('_ms').replace('_', ' ')}", moment(value))
            if key.endswith("at_ms") and value is not None
            else (f"  {key.replace('_', ' ')}", value)
            for key, value in evidence.items()
        ]
    )


def named(row: Mapping[str, Any]) -> str:
    """A namespace, with its tenant where that is not the default one."""
    return f"{row['tenant']}: {row['namespace']}" if row["tenant"] else str(row["namespace"])


def _list(server: Remote, options: argparse.Namespace) -> int:
    pages = of_server(server, "/admin/v1/states", StateList, query(options))
    found = gathered(pages, "states", options.limit, options.after)
    as_json(found) if options.json else show_list(found)
    if not found["states"] and options.namespace is not None:
        _say_if_unknown(server, options)
    return 0


def _say_if_unknown(server: Remote, options: argparse.Namespace) -> None:
    """That an empty list is of a namespace that is not there, or of what is no name."""
    query = {"namespace": options.namespace, "tenant": options.tenant, "limit": 1}
    try:
        server.get("/admin/v1/tree/nodes", NodeStep, query)
    except Refused as error:
        if error.code != "namespace_not_found":
            return
        say_unknown(options.namespace)


def say_unknown(name: str) -> None:
    """That there is no namespace of that name."""
    hint = "; a name is taken as it is, not as a pattern" if set("*?[") & set(name) else ""
    say(f"there is no namespace {name!r}{hint}")


def _show(server: Remote, options: argparse.Namespace) -> int:
    found = server.get(path(options.state_id), StateDetail)
    as_json(found) if options.json else show_detail(found)
    return 0


def _pin(server: Remote, options: argparse.Namespace) -> int:
    body = {"ttl_s": options.ttl, "reason": options.reason}
    found = server.call("PUT", path(options.state_id, "pin"), PinInfo, body=body)
    if options.json:
        as_json(found)
    else:
        print(f"{safe(found['state_id'])} is pinned {_until(found)}")
    return 0


def _unpin(server: Remote, options: argparse.Namespace) -> int:
    server.call("DELETE", path(options.state_id, "pin"))
    if options.json:
        as_json({"unpinned": options.state_id})
    else:
        print(f"{safe(options.state_id)} is not pinned any more")
    return 0


def _pins(server: Remote, options: argparse.Namespace) -> int:
    pages = of_server(server, "/admin/v1/pins", PinList, {})
    found = gathered(pages, "pins", options.limit, options.after)
    if options.json:
        as_json(found)
        return 0
    table(
        ("STATE", "SIZE", "PINNED", "LEFT", "BY", "NAMESPACE", "REASON"),
        [
            (
                row["state_id"],
                sizes.about(row["logical_bytes"]),
                age(row["created_at_ms"]),
                _pin_left(row),
                row["actor"],
                named(row),
                row["reason"],
            )
            for row in found["pins"]
        ],
        right="SIZE,PINNED,LEFT",
    )
    say_more(found)
    held, most = sizes.about(found["pinned_bytes"]), sizes.about(found["pin_budget_bytes"])
    print(f"{held} are pinned, {most} may be")
    return 0


def _offline(settings: Settings, options: argparse.Namespace) -> int:
    from app.commands import offline

    with offline.stopped(settings) as store:
        if options.action == "show":
            found = offline.state(store, options.state_id)
            as_json(found) if options.json else show_detail(found)
            return 0
        with offline.states(store, settings, query(options)) as pages:
            listed = gathered(pages, "states", options.limit, options.after)
        name = options.namespace
        if name is not None and not offline.has_namespace(store, name, options.tenant):
            say_unknown(name)
    as_json(listed) if options.json else show_list(listed)
    return 0


_ACTIONS = {"list": _list, "show": _show, "pin": _pin, "unpin": _unpin, "pins": _pins}


def _exactly(size_bytes: int) -> str:
    return f"{sizes.about(size_bytes)} ({size_bytes:,} bytes)"


def _until(pin: Mapping[str, Any]) -> str:
    ends = pin["expires_at_ms"]
    return "for ever" if ends is None else f"until {moment(ends)}"


def _pin_left(pin: Mapping[str, Any] | None) -> str:
    if pin is None:
        return ""
    return "for ever" if pin["expires_at_ms"] is None else left(pin["expires_at_ms"])


def _tokens(text: str) -> str:
    """Ids as the route takes them: base64url of little-endian int32."""
    try:
        ids = [int(part) for part in text.split(",")]
        packed = struct.pack(f"<{len(ids)}i", *ids)
    except (ValueError, struct.error) as error:
        raise argparse.ArgumentTypeError("token ids are int32 numbers, as in 1,2,3") from error
    return base64.urlsafe_b64encode(packed).decode()
