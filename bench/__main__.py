"""`make bench`: run everything and print it side by side, with ratios."""

from __future__ import annotations

import argparse
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path

from pysqlite3 import dbapi2

from bench import bare, lookups, transfers
from bench.load import measure


def main() -> None:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller stores and payloads")
    parser.add_argument("--only", choices=["lookups", "transfers", "big"])
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
        payloads = (16 << 20,) if options.quick else (16 << 20, 256 << 20)
        figures["transfers"] = [_transfers(size, 5) for size in payloads]
    if options.only == "big" or (options.only is None and not options.quick):
        figures["big_upload"] = _big(2 << 30)
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


if __name__ == "__main__":
    main()
