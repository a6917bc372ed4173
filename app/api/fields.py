"""Our response headers, as RFC 9651 structured fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import http_sf

from app.engine.manifest import Manifest, Part
from app.engine.misses import Miss
from app.engine.restoring import Reading

NO_STORE = {"Cache-Control": "private, no-store"}
VARY = {"Vary": "Accept-Encoding"}
ENCODED = {"Content-Encoding": "zstd", **VARY}


def etag(part: Part) -> str:
    """Strong: two components of the same ETag have the same bytes."""
    return f'"{"blocks-" if part.by_blocks else ""}{part.digest.hex()}"'


def of_state(reading: Reading) -> dict[str, str]:
    """Everything a restore says besides the bytes.

    `Statehold-State`: item, the state id, with page-id, kind, token-count, logical-bytes,
    entries (components), blocks, candidate and, if it was cut, truncated-from.
    `Statehold-Components`: list of names in wire order with bytes and, where it is known, digest
    (BLAKE3-256). `Statehold-Lease`: item, the lease that ends with this response. `Server-Timing`:
    lookup and reconstruct in ms.
    """
    manifest, state = reading.opened.manifest, reading.state
    headers = {
        "Statehold-State": http_sf.ser(
            _item(
                state.state_id,
                {
                    "page-id": state.page_id,
                    "kind": http_sf.Token(state.kind),
                    "token-count": state.token_count,
                    "logical-bytes": state.logical_bytes,
                    "entries": len(manifest.parts),
                    "blocks": manifest.block_count,
                    "candidate": reading.candidate,
                }
                | (
                    {}
                    if reading.whole_tokens == state.token_count
                    else {"truncated-from": reading.whole_tokens}
                ),
            )
        ),
        "Statehold-Components": components(manifest),
        "Server-Timing": (
            f"lookup;dur={reading.lookup_ms:.3f}, reconstruct;dur={reading.reconstruct_ms:.3f}"
        ),
        "Cache-Status": "Statehold; hit",
        **NO_STORE,
    }
    if reading.lease_id is not None:
        headers["Statehold-Lease"] = http_sf.ser(reading.lease_id)
    if state.kv_descriptor is not None:
        headers["Statehold-Kv-Descriptor"] = http_sf.ser(state.kv_descriptor.encode())
    return headers


def components(manifest: Manifest) -> str:
    """Names in wire order, each with its bytes and BLAKE3-256 digest."""
    return http_sf.ser(
        [
            _item(
                http_sf.Token(part.name),
                {"bytes": part.raw_bytes}
                | ({} if part.bytes_digest is None else {"digest": part.bytes_digest}),
            )
            for part in manifest.parts
        ]
    )


def of_miss(misses: Sequence[Miss], lookup_ms: float) -> dict[str, str]:
    """`Statehold-Miss`: one token for each candidate, with evicted-ago or differing fields."""
    return {
        "Statehold-Miss": http_sf.ser([_reason(miss) for miss in misses]),
        "Server-Timing": f"lookup;dur={lookup_ms:.3f}",
        "Cache-Status": f"Statehold; fwd=miss; detail={misses[0].reason.value}",
        **NO_STORE,
    }


def _item(value: Any, parameters: dict[str, Any]) -> Any:
    """An item with parameters; the library's own type for it cannot be met by a literal."""
    return value, parameters


def _reason(miss: Miss) -> tuple[http_sf.Token, dict[str, Any]]:
    parameters: dict[str, Any] = {}
    if miss.evicted_ago is not None:
        parameters["evicted-ago"] = http_sf.Token(miss.evicted_ago)
    if miss.differing_fields:
        text = ",".join(miss.differing_fields)
        if text.isascii() and text.isprintable():
            parameters["differing-fields"] = text[:1024]
    return http_sf.Token(miss.reason.value), parameters
