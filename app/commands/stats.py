"""`statehold stats`: what is held, what it takes, and what has been counted."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from app import sizes
from app.api.schemas.admin import Stats
from app.commands import arguments as take
from app.commands import remote
from app.commands.showing import as_json, pairs, table
from app.settings import Settings

NAME = "stats"
HELP = "show the figures of the whole store"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    remote.arguments(parser)
    take.offline(parser)
    parser.add_argument("--counters", action="store_true", help="every counter too")


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Print them."""
    if options.offline:
        from app.commands import offline

        with offline.stopped(settings) as store:
            found = offline.stats(store, settings)
    else:
        found = remote.connect(settings, options).get("/admin/v1/stats", Stats)
    if options.json:
        as_json(found)
        return 0
    pairs(_figures(found))
    if options.counters:
        print()
        table(
            ("COUNTER", "LABEL", "VALUE"),
            [(at["name"], at["label"], f"{at['value']:,}") for at in found["counters"]],
            right="VALUE",
        )
    return 0


def _figures(found: Mapping[str, Any]) -> list[tuple[str, object]]:
    counters = {(at["name"], at["label"]): at["value"] for at in found["counters"]}
    size = {key: sizes.about(value) for key, value in found.items() if key.endswith("_bytes")}
    stored, budget = found["stored_bytes"], found["budget_bytes"]
    raw, logical = found["block_raw_bytes"], found["logical_bytes"]
    ratio = found["write_amplification"]["ratio"]
    return [
        ("live states", f"{found['live']:,} of at most {found['max_entries']:,}"),
        ("recording", f"{found['recording']:,} ({size['reserved_bytes']} to come)"),
        ("quarantined", f"{found['quarantined']:,}"),
        ("namespaces", f"{found['namespaces']:,}"),
        ("leases held", f"{found['leases_held']:,}"),
        ("live, as recorded", size["logical_bytes"]),
        ("blocks, each once", f"{size['block_raw_bytes']}{_saved(logical, raw)}"),
        ("stored", f"{size['stored_bytes']}{_saved(raw, found['block_stored_bytes'])}"),
        ("budget", f"{size['budget_bytes']}, {_percent(stored, budget)} used"),
        ("block files", size["block_file_bytes"]),
        ("write-ahead log", size["wal_bytes"]),
        ("free disk", size["free_disk_bytes"]),
        ("write amplification", None if ratio is None else f"{ratio:.2f}"),
        *_lookups(counters),
    ]


def _lookups(counters: Mapping[tuple[str, str], int]) -> list[tuple[str, object]]:
    asked = {label: value for (name, label), value in counters.items() if name == "lookups"}
    return [(f"lookups, {label}", f"{value:,}") for label, value in sorted(asked.items()) if label]


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "0 %"


def _saved(before: int, after: int) -> str:
    """What is saved; nothing where blocks of states out of service outweigh it."""
    return f" (saves {_percent(before - after, before)})" if after < before else ""
