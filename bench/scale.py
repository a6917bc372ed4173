"""A store of a million states: build, start, look up, evict, check and compact; and its files under churn.

`python -m bench.scale` fills a folder of its own with small synthetic states and prints what each step
took; `--churn` instead turns a block store over many times at a full budget and prints its file's size.

The fill writes rows as `store.py` would leave them, but in bulk: going through its steps costs a
millisecond a state. `statehold check` at the end says whether it did it right.
"""

from __future__ import annotations

import argparse
import base64
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np

from app.engine.identity import token_digest
from app.engine.manifest import seal
from bench.load import connect, exchange, measure, post
from migrations import upgrade
from storage.blocks.codec import EncodedBlock, encode, footprint_bytes
from storage.blocks.lmdb import LmdbBlocks
from storage.clock import wall_ms
from storage.layout import DataFolder
from storage.rows import ComponentRow, OwnedBlock, StateRow
from storage.store import Store
from tests.support.server import Server

_ROOT: Final = Path(__file__).parents[1]
_SYSTEM_TOKENS: Final = 100
_TURNS: Final = 5
_FIRST_TOKENS: Final = 200
_TURN_TOKENS: Final = 300
_PAYLOAD_BYTES: Final = 256
_OVERHEAD_BYTES: Final = 2048
_BATCH_CONVERSATIONS: Final = 2000
_STEADY_PER_SECOND: Final = 100
_EVICTED: Final = 10_000
_VALUES: Final = attrgetter(*(field.name for field in fields(StateRow)))

# (key, stored value) in order of the key, and the rows of each table.
Batch = tuple[list[tuple[bytes, bytes]], dict[str, list[tuple[object, ...]]]]


@dataclass(frozen=True)
class Shape:
    """How many states, and in how many namespaces; conversations are spread over them in turn."""

    states: int
    namespaces: int

    @property
    def conversations(self) -> int:
        return self.states // _TURNS

    def namespace(self, conversation: int) -> str:
        return f"model-{conversation % self.namespaces}"

    def tokens(self, conversation: int, count: int) -> bytes:
        """A conversation's first `count` tokens, int32 little-endian, behind a shared system prompt."""
        common = np.random.default_rng(0).integers(1, 32_000, _SYSTEM_TOKENS, dtype=np.int32)
        own = np.random.default_rng(conversation + 1).integers(1, 32_000, count, dtype=np.int32)
        own[0] = 32_000 + conversation // self.namespaces  # siblings differ in their first token
        return np.concatenate([common, own])[:count].tobytes()


@dataclass(frozen=True)
class Churn:
    """After so many turnovers: bytes accounted for, bytes of pages in use, bytes of the files."""

    turnovers: int
    held_bytes: int
    used_bytes: int
    file_bytes: int

    @property
    def ratio(self) -> float:
        """File bytes to held bytes."""
        return self.file_bytes / self.held_bytes


# ---- filling -----------------------------------------------------------------------------------


def fill(folder: DataFolder, shape: Shape) -> None:
    """Put the states into a new data folder."""
    folder.prepare()
    upgrade(folder.database)
    starts = range(0, shape.conversations, _BATCH_CONVERSATIONS)
    parts = [
        (shape, range(start, min(shape.conversations, start + _BATCH_CONVERSATIONS)))
        for start in starts
    ]
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        _fill(folder, shape, pool.imap(_prepare, parts))


def _fill(folder: DataFolder, shape: Shape, prepared: Iterator[Batch]) -> None:
    store = Store(folder)
    try:
        with store.db.write(durable=True) as connection:
            driver: Any = connection.connection.driver_connection
            now = wall_ms()
            system = shape.tokens(0, _SYSTEM_TOKENS)
            for n in range(shape.namespaces):
                driver.execute(
                    "INSERT INTO namespace (id, name, entries, stored_bytes, logical_bytes, "
                    "created_at_ms) VALUES (?, ?, 0, 0, 0, ?)",
                    (n + 1, shape.namespace(n), now),
                )
                driver.executemany(
                    "INSERT INTO radix_node VALUES (?, ?, ?, ?, ?, ?)",
                    [
                        (2 * n + 1, n + 1, None, b"", b"", 0),
                        (2 * n + 2, n + 1, 2 * n + 1, system[:4], system, _SYSTEM_TOKENS),
                    ],
                )
        for batch in prepared:
            _write(store, batch)
        with store.db.write(durable=True) as connection:
            driver = connection.connection.driver_connection
            driver.execute(
                "UPDATE namespace SET entries = f.entries, stored_bytes = f.stored, "
                "logical_bytes = f.logical FROM (SELECT s.namespace_id, count(*) AS entries, "
                "sum(s.overhead_bytes + b.stored_bytes) AS stored, sum(s.logical_bytes) AS logical "
                "FROM state s JOIN state_block o ON o.state = s.id JOIN block b ON b.id = o.block "
                "GROUP BY s.namespace_id) AS f WHERE f.namespace_id = namespace.id"
            )
            driver.execute(
                "UPDATE store SET entries = (SELECT sum(entries) FROM namespace), "
                "stored_bytes = (SELECT sum(stored_bytes) FROM namespace), clean = 1"
            )
        store.db.checkpoint()
    finally:
        store.close()


def _prepare(job: tuple[Shape, range]) -> Batch:
    """Blocks and rows of the states of these conversations."""
    shape, conversations = job
    now = wall_ms()
    blocks: list[tuple[bytes, bytes]] = []
    rows: dict[str, list[tuple[object, ...]]] = {
        table: [] for table in ("radix_node", "state", "component", "block", "state_block")
    }
    for conversation in conversations:
        namespace_id = conversation % shape.namespaces + 1
        name = shape.namespace(conversation)
        tokens = shape.tokens(conversation, _FIRST_TOKENS + (_TURNS - 1) * _TURN_TOKENS)
        parent, depth = 2 * namespace_id, _SYSTEM_TOKENS
        payloads = np.random.default_rng((7, conversation)).bytes(_TURNS * _PAYLOAD_BYTES)
        for turn in range(_TURNS):
            id_ = conversation * _TURNS + turn + 1
            node = 2 * shape.namespaces + id_
            count = _FIRST_TOKENS + turn * _TURN_TOKENS
            prefix, edge = tokens[: 4 * count], tokens[4 * depth : 4 * count]
            block = encode(payloads[turn * _PAYLOAD_BYTES :][:_PAYLOAD_BYTES], generation=0)
            stored_bytes = footprint_bytes(block.value_bytes)
            state = StateRow(
                id_,
                str(uuid.UUID(int=(1 << 100) + id_)),
                namespace_id,
                f"{conversation}-{count}",
                "full_state",
                "live",
                node,
                count,
                token_digest(name, prefix),
                None,
                None,
                _PAYLOAD_BYTES,
                _OVERHEAD_BYTES,
                now,
                now + id_ % 977,
                0,
            )
            part = ComponentRow(0, "full", _PAYLOAD_BYTES, block.digest, None, None, 0, 0, 0)
            owned = OwnedBlock(0, 0, block.digest, _PAYLOAD_BYTES, stored_bytes)
            blocks.append((block.digest, bytes(block.value)))
            rows["radix_node"].append((node, namespace_id, parent, edge[:4], edge, count))
            sealed = replace(state, manifest_digest=seal(state, (part,), [owned]))
            rows["state"].append(_VALUES(sealed))
            rows["component"].append((id_, "full", _PAYLOAD_BYTES, block.digest))
            rows["block"].append((id_, block.digest, _PAYLOAD_BYTES, stored_bytes))
            rows["state_block"].append((id_, id_, namespace_id))
            parent, depth = node, count
    blocks.sort()
    return blocks, rows


def _write(store: Store, batch: Batch) -> None:
    """The blocks in one commit, then the rows in one."""
    blocks, rows = batch
    store.blocks.put(
        [EncodedBlock(digest, _PAYLOAD_BYTES, len(value), value) for digest, value in blocks], 0
    )
    with store.db.write(durable=False) as connection:
        driver: Any = connection.connection.driver_connection
        for statement, table in (
            ("INSERT INTO radix_node VALUES (?, ?, ?, ?, ?, ?)", "radix_node"),
            (f"INSERT INTO state VALUES ({', '.join('?' * 16)})", "state"),
            (
                "INSERT INTO component (state, ordinal, name, raw_bytes, digest) "
                "VALUES (?, 0, ?, ?, ?)",
                "component",
            ),
            ("INSERT INTO block VALUES (?, ?, ?, ?, 1)", "block"),
            ("INSERT INTO state_block VALUES (?, 0, 0, ?, ?)", "state_block"),
        ):
            driver.executemany(statement, rows[table])


# ---- churn -------------------------------------------------------------------------------------


def churn(folder: Path, budget_bytes: int, turnovers: int, seed: int = 1) -> Iterator[Churn]:
    """Write states of mixed blocks into a block store at a full budget; yields after each turnover.

    Eviction is as the service's: when the next state does not fit, the least recently used go until
    95 % of the budget is held; of those met on the way, one in five has been used again and stays.
    """
    random = np.random.default_rng(seed)
    noise = memoryview(random.bytes(4 << 20))
    blocks = LmdbBlocks(folder)
    held: deque[tuple[int, list[bytes]]] = deque()
    held_bytes = written_bytes = 0
    done = 0
    try:
        while done < turnovers:
            values = [noise[at : at + size] for at, size in _mixed(random)]
            need_bytes = sum(footprint_bytes(len(value)) for value in values)
            if held_bytes + need_bytes > budget_bytes:
                gone: list[bytes] = []
                while held_bytes > 0.95 * budget_bytes - need_bytes:
                    size, digests = held.popleft()
                    if random.random() < 0.2:
                        held.append((size, digests))
                        continue
                    held_bytes -= size
                    gone += digests
                for start in range(0, len(gone), 256):
                    blocks.delete(gone[start : start + 256], 0)
            encoded = [EncodedBlock(random.bytes(32), len(v) - 64, len(v), v) for v in values]
            for part in _batches(encoded):
                blocks.put(part, 0)
            held.append((need_bytes, [block.digest for block in encoded]))
            held_bytes += need_bytes
            written_bytes += need_bytes
            if written_bytes >= (done + 1) * budget_bytes:
                done += 1
                found = blocks.stats()
                yield Churn(done, held_bytes, found.used_bytes, found.file_bytes)
    finally:
        blocks.close()


def _mixed(random: np.random.Generator) -> Iterator[tuple[int, int]]:
    """Stored values of one state, as (place in the noise, bytes): windows, frames, or anything."""
    sizes: list[int]
    kind = random.random()
    if kind < 0.7:  # token windows of one model, compressed by more or less, and a frame
        window = int(random.choice((128, 160, 192, 256))) << 10
        ratio = 1.0 if kind < 0.3 else random.uniform(0.45, 0.9)
        count = int(random.integers(4, 40))
        sizes = [int(window * min(1.0, ratio * random.normal(1, 0.03))) for _ in range(count)]
        sizes.append(int(random.integers(1 << 10, 16 << 10)))
    elif kind < 0.9:  # fixed cuts of a component without geometry, the last one shorter
        sizes = [1 << 20] * int(random.integers(1, 8)) + [int(random.integers(1 << 10, 1 << 20))]
    else:
        sizes = [int(random.integers(64 << 10, 1 << 20)) for _ in range(int(random.integers(1, 8)))]
    for size in sizes:
        yield int(random.integers(0, (3 << 20) - 64)), size + 64


def _batches(blocks: Sequence[EncodedBlock]) -> Iterator[list[EncodedBlock]]:
    """As the writer puts them: about 4 MiB at a time."""
    batch: list[EncodedBlock] = []
    for block in blocks:
        batch.append(block)
        if sum(b.value_bytes for b in batch) >= 4 << 20:
            yield batch
            batch = []
    if batch:
        yield batch


# ---- measuring ---------------------------------------------------------------------------------


def requests(shape: Shape, length: int = 2000) -> list[bytes]:
    """Lookups of conversations all over the store, each longer than what is recorded of it."""
    step = max(1, shape.conversations // 1000)
    found = []
    for conversation in range(0, shape.conversations, step):
        prefix = {
            "namespace": shape.namespace(conversation),
            "tokens_b64": base64.b64encode(shape.tokens(conversation, length)).decode(),
        }
        found.append(post("/v1/lookup", json.dumps({"candidates": [prefix]}).encode()))
    return found


class Steady:
    """Lookups at a fixed rate from a process of its own; each is timed from when it was due."""

    def __init__(self, port: int, queries: Sequence[bytes]) -> None:
        context = multiprocessing.get_context("fork")
        self._samples: Any = context.SimpleQueue()
        self._stop = context.Event()
        self._process = context.Process(target=self._drive, args=(port, queries))
        self._process.start()

    def _drive(self, port: int, queries: Sequence[bytes]) -> None:
        samples: list[float] = []
        with connect(port) as connection:
            due = time.perf_counter()
            while not self._stop.is_set():
                time.sleep(max(0.0, due - time.perf_counter()))
                exchange(connection, queries[len(samples) % len(queries)])
                samples.append(time.perf_counter() - due)
                due += 1 / _STEADY_PER_SECOND
        self._samples.put(sorted(samples))

    def stop(self) -> dict[str, float]:
        self._stop.set()
        samples = self._samples.get()
        self._process.join()
        return {
            "lookups": len(samples),
            "p50_ms": round(samples[len(samples) // 2] * 1000, 2),
            "p99_ms": round(samples[int(len(samples) * 0.99)] * 1000, 2),
            "max_ms": round(samples[-1] * 1000, 2),
        }


def evict(server: Server, shape: Shape, queries: Sequence[bytes]) -> dict[str, Any]:
    """Lookups at a steady rate alone, while states go by id, and while they go by target."""
    alone = Steady(server.port, queries)
    time.sleep(5)
    found: dict[str, Any] = {"alone": alone.stop()}
    wanted = min(_EVICTED, shape.states // 4)
    with httpx.Client(base_url=server.url, timeout=600) as client:
        for way in ("by_target", "by_ids"):
            steady = Steady(server.port, queries)
            started = time.perf_counter()
            gone = (_by_target if way == "by_target" else _by_ids)(client, wanted)
            took = time.perf_counter() - started
            found[way] = {"evicted": gone, "seconds": round(took, 2), **steady.stop()}
    return found


def _by_target(client: httpx.Client, wanted: int) -> int:
    held = client.get("/admin/v1/stats").json()["stored_bytes"]
    a_state = footprint_bytes(64 + _PAYLOAD_BYTES) + _OVERHEAD_BYTES
    answer = client.post("/admin/v1/evictions", json={"target_bytes": held - wanted * a_state})
    return len(answer.json()["evicted"])


def _by_ids(client: httpx.Client, wanted: int) -> int:
    gone = 0
    while gone < wanted:
        limit = min(1000, wanted - gone)
        page = client.get("/admin/v1/states", params={"limit": limit, "status": "live"}).json()
        ids = [state["state_id"] for state in page["states"]]
        answer = client.post("/admin/v1/evictions", json={"state_ids": ids})
        gone += len(answer.json()["evicted"])
    return gone


def run(shape: Shape, scratch: Path) -> dict[str, Any]:
    """Everything, in order; prints a line a step."""
    folder = DataFolder(scratch / "data")
    found: dict[str, Any] = {"states": shape.states, "namespaces": shape.namespaces}

    started = time.perf_counter()
    fill(folder, shape)
    found["fill_s"] = round(time.perf_counter() - started, 1)
    found["bytes"] = {
        name: (folder.path / name).stat().st_size
        for name in ("metadata.db", "blocks/small/data.mdb")
    }
    _say("filled", f"{found['fill_s']} s, {sum(found['bytes'].values()) / 1e9:.2f} GB")
    return found | live_with(folder, shape)


def live_with(folder: DataFolder, shape: Shape) -> dict[str, Any]:
    """Start, look up, evict, stop, check and compact a filled folder."""
    found: dict[str, Any] = {}
    empty = DataFolder(folder.path.with_name("empty"))
    found["start_s"] = {"empty": _start(Server(empty.path, warm=False), kill=False)}
    server = Server(folder.path, warm=False, max_entries=2 * shape.states)
    found["start_s"]["clean"] = _start(server, kill=True)
    found["start_s"]["killed"] = _start(server, kill=True)
    _say("start to ready", "  ".join(f"{k} {v:.2f} s" for k, v in found["start_s"].items()))

    server.start()
    try:
        queries = requests(shape)
        found["lookups"] = {}
        for connections in (1, 8):
            load = measure(server.port, queries, connections, 5)
            found["lookups"][connections] = {k: round(v, 2) for k, v in asdict(load).items()}
            _say(f"lookups, {connections} connections", _line(found["lookups"][connections]))
        found["evict"] = evict(server, shape, queries)
        for way, figures in found["evict"].items():
            _say(f"lookups at {_STEADY_PER_SECOND}/s, eviction {way}", _line(figures))
    finally:
        started = time.perf_counter()
        server.stop(120)
        found["stop_s"] = round(time.perf_counter() - started, 2)
    _say("stop", f"{found['stop_s']} s")

    found["check"] = _command(folder, "check")
    _say("check", f"{found['check']['seconds']} s: {found['check']['output']}")
    compacted = _command(folder, "compact", "--json")
    found["compact"] = json.loads(compacted["output"])
    _say("compact", f"{compacted['seconds']} s: {_sizes(found['compact'])}")
    found["check_compacted"] = _command(folder, "check")
    _say("check", f"{found['check_compacted']['seconds']} s: {found['check_compacted']['output']}")
    return found


def _churn(scratch: Path, budget_bytes: int, turnovers: int) -> dict[str, Any]:
    print(f"Churn at a full budget of {budget_bytes >> 20} MiB; target: files under 1.3 x held")
    rows = []
    started = time.perf_counter()
    for row in churn(scratch / "blocks", budget_bytes, turnovers):
        rows.append(asdict(row) | {"ratio": round(row.ratio, 3)})
        seconds, started = time.perf_counter() - started, time.perf_counter()
        _say(
            f"turnover {row.turnovers}",
            f"held {row.held_bytes / 1e6:,.0f} MB  in use {row.used_bytes / 1e6:,.0f} MB  "
            f"files {row.file_bytes / 1e6:,.0f} MB = {row.ratio:.3f} x  {seconds:.1f} s",
        )
    return {"churn": rows}


def _start(server: Server, *, kill: bool) -> float:
    started = time.perf_counter()
    server.start(120)
    took = time.perf_counter() - started
    if kill:
        server.kill()
    else:
        server.stop()
    return round(took, 2)


def _command(folder: DataFolder, *words: str) -> dict[str, Any]:
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "app", *words],
        cwd=_ROOT,
        env=os.environ | {"STATEHOLD_DATA_DIR": str(folder.path), "STATEHOLD_LOG_LEVEL": "error"},
        text=True,
        capture_output=True,
        check=False,
    )
    return {
        "seconds": round(time.perf_counter() - started, 1),
        "code": done.returncode,
        "output": (done.stdout + done.stderr).strip()[-2000:],
    }


def _say(what: str, figures: str) -> None:
    print(f"  {what:42}{figures}", flush=True)


def _line(figures: dict[str, Any]) -> str:
    return "  ".join(f"{name} {value}" for name, value in figures.items())


def _sizes(figures: dict[str, Any]) -> str:
    return f"{figures['before_bytes'] / 1e9:.3f} -> {figures['after_bytes'] / 1e9:.3f} GB"


def main() -> None:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--states", type=int, default=1_000_000)
    parser.add_argument("--namespaces", type=int, default=1_000)
    parser.add_argument("--churn", action="store_true", help="only the file under churn")
    parser.add_argument("--budget-mib", type=int, default=1024, help="with --churn")
    parser.add_argument("--turnovers", type=int, default=20, help="with --churn")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    options = parser.parse_args()
    shape = Shape(options.states, options.namespaces)
    with tempfile.TemporaryDirectory() as scratch:
        if options.churn:
            figures = _churn(Path(scratch), options.budget_mib << 20, options.turnovers)
        else:
            print(f"{shape.states:,} states in {shape.namespaces:,} namespaces")
            figures = run(shape, Path(scratch))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
