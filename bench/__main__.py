"""`make bench`: run everything and print it side by side, with ratios."""

from __future__ import annotations

import argparse
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pysqlite3 import dbapi2

from bench import bare, conversation, lookups, payloads, peers, transfers
from bench.load import measure


def main() -> None:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller stores and payloads")
    parser.add_argument("--only", choices=["lookups", "transfers", "big", "peers"])
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    options = parser.parse_args()
    print(
        f"{os.cpu_count()} cores, {platform.machine()}, Linux {platform.release()}, "
        f"Python {platform.python_version()}, SQLite {dbapi2.sqlite_version}, "
        f"uvicorn {version('uvicorn')}, lmdb {version('lmdb')}"
    )
    figures: dict[str, object] = {}
    if options.only in (None, "lookups"):
        sizes = (1_000, 10_000) if options.quick else (1_000, 100_000)
        figures["lookups"] = _lookups(sizes, 1.0 if options.quick else 2.5)
    if options.only in (None, "transfers"):
        large = (16 << 20,) if options.quick else (16 << 20, 256 << 20)
        figures["transfers"] = [_transfers(size, 5) for size in large]
    if options.only == "big" or (options.only is None and not options.quick):
        figures["big_upload"] = _big(2 << 30)
        figures["many_uploads"] = [_many(8, 1 << 30, windows=windows) for windows in (False, True)]
    if options.only in (None, "peers"):
        figures["peers"] = _peers(quick=options.quick)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2))


def _lookups(sizes: tuple[int, ...], seconds: float) -> list[dict[str, object]]:
    print("\nLookups (peek, base64), one worker; targets: over 3,000/s and p50 under 1 ms at 2,000")
    limit = _bare(seconds)
    rows: list[dict[str, object]] = [limit]
    for row in lookups.run(sizes, seconds):
        rows.append(row)
        print(
            f"  {row['states']:>9,} states {row['tokens']:>7,} tokens {row['connections']} conn: "
            f"{row['per_second']:>7,}/s  p50 {row['p50_ms']} ms  p99 {row['p99_ms']} ms  "
            f"{float(str(row['per_second'])) / float(str(limit['per_second'])):.2f} x bare"
        )
    for length in lookups.QUERIES:
        small, large = (
            next(
                float(str(r["p50_ms"]))
                for r in rows
                if (r["states"], r["tokens"], r["connections"]) == (size, length, 1)
            )
            for size in sizes
        )
        print(
            f"  growth of p50 from {sizes[0]:,} to {sizes[1]:,} states at {length:,} tokens: "
            f"{large / small:.2f} x (target under 1.5 x)"
        )
    return rows


def _bare(seconds: float) -> dict[str, object]:
    request = b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n"
    with bare.served() as port:
        best = max(
            (measure(port, [request] * 50, connections, seconds) for connections in (1, 2, 8)),
            key=lambda found: found.per_second,
        )
    print(
        f"  bare async route of the same stack, best of 1, 2, 8 connections: {best.per_second:,.0f}/s  "
        f"p50 {best.p50_ms:.3f} ms"
    )
    return {"states": 0, "tokens": 0, "connections": 0, "per_second": round(best.per_second)}


def _transfers(size: int, rounds: int) -> dict[str, float]:
    found = transfers.run(size, rounds)
    down, up = found["loopback_receive"], found["loopback_send"]
    print(f"\n{size >> 20} MiB, best of {rounds}, GB/s")
    print(f"  loopback socket   receive {down:.2f}   send {up:.2f}")
    print(
        f"  plain file        write + fsync {found['file_write_fsync']:.2f}   "
        f"read {found['file_read']:.2f}"
    )
    print(
        f"  restore           {found['restore']:.2f} = {found['restore'] / down:.2f} x loopback "
        f"(target 0.4)   {found['cpu_s_per_gb_restore']:.2f} CPU s/GB"
    )
    print(
        f"  record            {found['record']:.2f} = {found['record'] / up:.2f} x loopback "
        f"(target 0.2)   {found['cpu_s_per_gb_record']:.2f} CPU s/GB"
    )
    print(
        f"  record, held      {found['record_held']:.2f} = "
        f"{found['record_held'] / found['record']:.2f} x a first record"
    )
    return found


def _big(size: int) -> dict[str, float]:
    found = transfers.big_upload(size)
    print(
        f"\nOne component of {size >> 30} GiB: memory {found['rss_before_mib']:.0f} -> "
        f"{found['peak_rss_mib']:.0f} MiB, growth {found['growth_mib']:.0f} MiB (target 256), "
        f"{found['gb_per_s']:.2f} GB/s"
    )
    return found


def _many(count: int, size: int, *, windows: bool) -> dict[str, float]:
    found = transfers.many_uploads(count, size, windows=windows)
    print(
        f"\n{count} components of {size / (1 << 30):g} GiB at once"
        f"{', in token windows' if windows else ''}: own memory {found['own_before_mib']:.0f} -> "
        f"{found['peak_own_mib']:.0f} MiB, {found['peak_rss_mib']:.0f} MiB with mapped files; "
        f"{found['gb_per_s']:.2f} GB/s"
    )
    return found


def _peers(*, quick: bool) -> dict[str, object]:
    print(
        "\nThe same states in this service and in what could be used in its place, round by round"
    )
    subjects, absent = peers.available()
    for line in (*absent, *(subject.remark for subject in subjects if subject.remark)):
        print(f"  {line}")
    rounds = 3 if quick else 5
    sizes = (16 << 20,) if quick else (16 << 20, 64 << 20, 256 << 20)
    found: dict[str, object] = {}
    for size in sizes:
        rows = peers.run(subjects, payloads.EIGHT_BILLION, size, rounds)
        found[f"{size >> 20} MiB"] = rows
        _peer_table(rows, size, rounds)
    spoken = conversation.run(subjects, payloads.SMALL if quick else payloads.EIGHT_BILLION)
    found["conversation"] = spoken
    _conversation(spoken)
    return found


def _peer_table(rows: list[dict[str, Any]], size: int, rounds: int) -> None:
    print(
        f"\n{size >> 20} MiB, median (best) of {rounds} rounds; put is durable but for the limits\n"
        f"  {'':16}{'put GB/s':>14}{'get GB/s':>16}   CPU s/GB put   get   "
        "of loopback put   get   of faster redis put   get"
    )
    for row in rows:
        shares = []
        for other in ("loopback", "redis"):
            for direction in ("put", "get"):
                rate = f"{direction}_gb_per_s"
                # Of Redis's two forms the faster one counts.
                limit = max((r[rate] for r in rows if r["name"].startswith(other)), default=None)
                share = row[f"{direction}_of_{other}"] = row[rate] / limit if limit else None
                shares.append("-" if share is None else f"{share:.2f}")
        print(
            f"  {row['name']:16}"
            f"{row['put_gb_per_s']:>7.2f} ({row['put_best_gb_per_s']:.2f})"
            f"{row['get_gb_per_s']:>9.2f} ({row['get_best_gb_per_s']:.2f})"
            f"{row['put_cpu_s_per_gb']:>15.2f}{row['get_cpu_s_per_gb']:>6.2f}"
            f"{shares[0]:>18}{shares[1]:>6}{shares[2]:>22}{shares[3]:>6}"
        )
    for row in rows:
        if "again_gb_per_s" in row:
            ratio = row["again_of_put"] = row["again_gb_per_s"] / row["put_gb_per_s"]
            print(
                f"  {row['name']}: a put of what is held {row['again_gb_per_s']:.2f} GB/s = "
                f"{ratio:.1f} x a first one"
            )


def _conversation(found: dict[str, Any]) -> None:
    tokens, mib = found["tokens"], 1 << 20
    print(
        f"\nA conversation of {tokens[0]:,} tokens and {len(tokens) - 1} turns of "
        f"{tokens[1] - tokens[0]:,}, {found['token_bytes'] >> 10} KiB a token, recorded whole after "
        f"each: a turn has {found['turn_row_bytes'] / mib:.1f} MiB of new rows, the states together "
        f"{found['whole_bytes'] / mib:,.0f} MiB"
    )
    for row in found["subjects"]:
        grown = row["turn_stored_bytes"]
        print(
            f"  {row['name']:16}{sum(grown) / len(grown) / mib:>8.1f} MiB a turn = "
            f"{sum(grown) / len(grown) / found['turn_row_bytes']:>5.2f} x its rows   "
            f"{row['stored_bytes'] / mib:>7,.0f} MiB in all = "
            f"{row['stored_bytes'] / found['whole_bytes']:.2f} x whole files   "
            f"{sum(row['put_seconds'][1:]) / len(grown):.2f} s a turn"
        )
        if "write_amplification" in row:
            print(
                f"  {'':16}its own account: {row['accounted_bytes'] / mib:,.0f} MiB stored, "
                f"write amplification {row['write_amplification']['ratio']:.3f}"
            )


if __name__ == "__main__":
    main()
