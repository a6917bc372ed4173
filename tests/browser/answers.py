"""What a busy server answers, for routes that a test wants to have in a certain state."""

from __future__ import annotations

import math
import time
from typing import Any

EVIL = '<script>alert(1)</script><img src=x onerror="alert(2)">'
BIDI = "team-a/\u202egnp.exe\u202c/\u2066llama\u200b"
WRITE = ["lookup", "record", "admin:read", "admin:write", "forensics"]


def now_ms() -> int:
    return int(time.time() * 1000)


def _id(number: int) -> str:
    return f"0198c0de-{number:04x}-7000-8000-00000000{number:04x}"


def whoami(scopes: list[str] | None = None, access: str = "token") -> dict[str, Any]:
    return {
        "access": access,
        "token_id": _id(1),
        "tenant": None,
        "scopes": WRITE if scopes is None else scopes,
        "namespaces": None,
    }


def stats(**more: Any) -> dict[str, Any]:
    counters = {
        ("lookups", "hit"): 184_233,
        ("lookups", "miss"): 39_512,
        ("hit_tokens", ""): 1_432_877_912,
        ("misses", "never_seen"): 24_003,
        ("misses", "evicted_recently"): 12_877,
        ("misses", "identity_mismatch"): 1_904,
        ("misses", "kind_not_accepted"): 716,
        ("misses", "quarantined"): 12,
    }
    return {
        "live": 12_488,
        "recording": 3,
        "quarantined": 2,
        "namespaces": 14,
        "leases_held": 7,
        "logical_bytes": 812 << 30,
        "block_count": 402_114,
        "block_raw_bytes": 96 << 30,
        "block_stored_bytes": 81 << 30,
        "stored_bytes": 82 << 30,
        "reserved_bytes": 3 << 30,
        "budget_bytes": 128 << 30,
        "max_entries": 1_000_000,
        "block_file_bytes": 90 << 30,
        "wal_bytes": 4 << 20,
        "free_disk_bytes": 410 << 30,
        "write_amplification": {"new_bytes": 115, "new_row_bytes": 100, "ratio": 1.15},
        "counters": [
            {"name": name, "label": label, "value": value}
            for (name, label), value in counters.items()
        ],
        **more,
    }


def history(minutes: int = 60, step_minutes: int = 1) -> dict[str, Any]:
    steps = minutes // step_minutes
    step_ms = step_minutes * 60_000
    asked = [round(160 + 70 * math.sin(n / 6) + (n * 37 % 41)) for n in range(steps)]
    hit = [
        round(a * (0.78 + 0.1 * math.sin(n / 9) + (n * 13 % 7) / 100)) for n, a in enumerate(asked)
    ]
    never = [(a - h) * 3 // 5 for a, h in zip(asked, hit, strict=True)]
    evicted = [a - h - n for a, h, n in zip(asked, hit, never, strict=True)]
    return {
        "from_ms": (now_ms() // step_ms - steps + 1) * step_ms,
        "step_ms": step_ms,
        "steps": steps,
        "series": [
            {"name": "hit_tokens", "label": "", "values": [h * 7_700 for h in hit]},
            {"name": "lookups", "label": "hit", "values": hit},
            {
                "name": "lookups",
                "label": "miss",
                "values": [a - h for a, h in zip(asked, hit, strict=True)],
            },
            {"name": "misses", "label": "evicted_recently", "values": evicted},
            {"name": "misses", "label": "never_seen", "values": never},
        ],
    }


def namespace(name: str, entries: int = 10, tenant: str = "", **more: Any) -> dict[str, Any]:
    return {
        "namespace": name,
        "tenant": tenant,
        "identity": {"model_id": "m"},
        "identity_digest": "ab" * 32,
        "warnings": [],
        "mode": None,
        "min_tokens": None,
        "max_entries": None,
        "max_stored_bytes": None,
        "entries": entries,
        "stored_bytes": entries * 7 << 20,
        "logical_bytes": entries * 65 << 20,
        "created_at_ms": now_ms() - 10**9,
        "write_amplification": {"new_bytes": 1, "new_row_bytes": 1, "ratio": 1.0},
        **more,
    }


NAMES = (
    "smollm2-135m-instruct-q4_1/llama.cpp-ggsq3/f16",
    "qwen3-32b-awq/vllm-0.11/tp2/bf16",
    "falcon-h1-7b/hybrid/f16/ctx131072",
    "mistral-small-3.2/llama.cpp-ggsq3/q8_0",
    EVIL,
    BIDI,
)


def namespaces() -> dict[str, Any]:
    found = [namespace(name, 4_200 // (n + 1)) for n, name in enumerate(NAMES)]
    found[1] |= {"tenant": "team-search", "mode": "lookup"}
    found[3] |= {"warnings": ["identity_without_weights_digest"]}
    return {"namespaces": found, "next": None}


def state(number: int, **more: Any) -> dict[str, Any]:
    name = number % len(NAMES)
    return {
        "state_id": _id(number),
        "page_id": "cd" * 32,
        "kind": ("full_state", "kv_recurrent", "kv")[number % 3],
        "token_count": 4_096 + 977 * number,
        "logical_bytes": (61 + number) << 20,
        "created_at_ms": now_ms() - 3_600_000,
        "namespace": NAMES[name],
        "tenant": "team-search" if name == 1 else "",
        "status": "live",
        "touched_at_ms": now_ms() - 41_000 * number,
        "hits": 900 // (name + 1),
        "pinned": False,
        **more,
    }


def states() -> dict[str, Any]:
    return {"states": [state(n) for n in range(24)], "next": None}


def evidence(**more: Any) -> dict[str, Any]:
    return {
        "failure_class": "block_damaged",
        "reason": "a block's bytes do not have its digest",
        "reported_by": "service",
        "component": "kv",
        "first_bad_block": 118,
        "expected_digest": "3a6ff5f3" * 8,
        "actual_digest": "91bb02c4" * 8,
        "lease_id": None,
        "client": None,
        "at_ms": now_ms() - 780_000,
        "verified_at_ms": None,
        "intact": None,
        **more,
    }


def quarantine() -> dict[str, Any]:
    reported = evidence(
        failure_class="invalid_data",
        reason="llama_state_seq_set_data returned 0",
        reported_by="client",
        component=None,
        first_bad_block=None,
        expected_digest=None,
        actual_digest=None,
        client=_id(7),
        at_ms=now_ms() - 86_400_000,
        verified_at_ms=now_ms() - 60_000,
        intact=True,
    )
    return {
        "states": [
            state(60, status="quarantined", evidence=evidence()),
            state(61, status="quarantined", evidence=reported),
        ],
        "next": None,
    }


def audit() -> dict[str, Any]:
    rows = [
        ("POST /admin/v1/evictions", "", "done"),
        ("PUT /admin/v1/mode", "", "done"),
        ("POST /admin/v1/jobs", "verify", "done"),
        ("POST /admin/v1/states/{state_id}/release", _id(60), "still_failing"),
        ("PATCH /admin/v1/namespaces", EVIL, "done"),
        ("DELETE /admin/v1/tokens/{token_id}", _id(9), "done"),
        ("PUT /admin/v1/states/{state_id}/pin", _id(12), "done"),
    ]
    return {
        "entries": [
            {
                "id": 100 - n,
                "at_ms": now_ms() - 190_000 * (n + 1),
                "actor": _id(1) if n % 3 else "command line",
                "action": action,
                "target": target,
                "outcome": outcome,
                "details": {},
            }
            for n, (action, target, outcome) in enumerate(rows)
        ],
        "next": None,
    }


def job(number: int, kind: str, status: str, **more: Any) -> dict[str, Any]:
    return {
        "job_id": _id(200 + number),
        "kind": kind,
        "status": status,
        "done": 402_114,
        "total": 402_114,
        "unit": "blocks",
        "arguments": {},
        "result": None,
        "error": None,
        "actor": _id(1),
        "created_at_ms": now_ms() - 3_600_000 * (number + 1),
        "ended_at_ms": None if status == "running" else now_ms() - 3_500_000 * (number + 1),
        **more,
    }


def jobs() -> dict[str, Any]:
    return {
        "jobs": [
            job(0, "verify", "running", done=171_400),
            job(
                1,
                "backup",
                "done",
                unit="bytes",
                done=81 << 30,
                total=81 << 30,
                arguments={"name": "2026-12-03"},
            ),
            job(2, "reclaim", "done", done=12_400, total=12_400),
            job(
                3, "backup", "failed", error="low_space", unit="bytes", done=9 << 30, total=81 << 30
            ),
        ]
    }


def pins() -> dict[str, Any]:
    return {"pins": [], "pinned_bytes": 2 << 30, "pin_budget_bytes": 16 << 30}


def ready(*degraded: str) -> dict[str, Any]:
    return {
        "ready": True,
        "degraded": list(degraded),
        "mode": "lookup_record",
        "sqlite_version": "3.53.0",
        "workers": 2,
        "free_disk_bytes": 410 << 30,
        "recovered": {},
    }


def node(node_id: int, depth: int, edge: int, children: int, states: int = 0) -> dict[str, Any]:
    kinds = ("full_state", "kv_recurrent", "kv")
    return {
        "node_id": node_id,
        "parent_id": None if depth == 0 else 1,
        "depth": depth,
        "edge_tokens": edge,
        "children": children,
        "state_count": states,
        "states": [
            {
                "state_id": _id(node_id * 8 + n),
                "kind": kinds[(node_id + n) % 3],
                "status": "quarantined" if (node_id + n) % 7 == 6 else "live",
                "logical_bytes": (node_id + 9) << 20,
            }
            for n in range(min(states, 16))
        ],
    }


_CHILDREN = {
    1: [
        node(2, 512, 512, 3, 1),
        node(3, 128, 128, 2),
        node(4, 96, 96, 0, 1),
        node(5, 2_048, 2_048, 1, 2),
    ],
    2: [node(6, 1_536, 1_024, 0, 1), node(7, 4_096, 3_584, 2, 1), node(8, 612, 100, 0, 1)],
    7: [node(9, 16_384, 12_288, 0, 1), node(10, 9_000, 4_904, 0, 1)],
    3: [node(11, 131_072, 130_944, 0, 1), node(12, 1_000, 872, 0, 6)],
    5: [node(13, 8_192, 6_144, 0, 1)],
}


def tree(node_id: int | None) -> dict[str, Any]:
    """The root has four children; what hangs below them is fixed too."""
    root = node(1, 0, 0, 4)
    everything = {1: root} | {one["node_id"]: one for page in _CHILDREN.values() for one in page}
    asked = node_id or 1
    return {"node": everything[asked], "children": _CHILDREN.get(asked, []), "more": False}
