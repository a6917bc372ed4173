"""Engine values as schemas, where several routes need the same translation."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.api.problems import ApiProblem
from app.api.schemas import cache as cache_schemas
from app.api.schemas.admin import CounterInfo, EvidenceInfo, StateDetail, StateInfo, StatePin, Stats
from app.api.schemas.blocks import BlocksWanted
from app.api.schemas.common import Component, Prefix, State, WriteAmplification
from app.api.schemas.namespaces import NamespaceInfo
from app.api.schemas.records import AnnouncedComponent
from app.engine.access import Caller
from app.engine.blockreader import Selection
from app.engine.identity import check_namespace, decode_tokens_b64, pack_tokens
from app.engine.lookup import Candidate
from app.engine.misses import Miss
from app.engine.registry import warnings
from app.settings import Settings
from storage.documents import document
from storage.rows import ComponentRow, Evidence, NamespaceRow, Pin, StateRow
from storage.scoped import split

_DECODE_IN_THREAD_CHARACTERS: Final = 1 << 20
_DIGESTS_IN_THREAD: Final = 4096


async def candidates(
    prefixes: Sequence[Prefix], settings: Settings, caller: Caller
) -> list[Candidate]:
    """Checked namespaces, as they are held, and packed tokens; in a thread when they are long.

    Raises:
        InvalidNamespace, InvalidTokens: with the field.
        Forbidden: a namespace that the caller may not use.
    """
    size = sum(len(p.tokens_b64 or "") + 8 * len(p.tokens or ()) for p in prefixes)
    if size > _DECODE_IN_THREAD_CHARACTERS:
        return await asyncio.to_thread(_candidates, prefixes, settings, caller)
    return _candidates(prefixes, settings, caller)


def _candidates(prefixes: Sequence[Prefix], settings: Settings, caller: Caller) -> list[Candidate]:
    found = []
    for prefix in prefixes:
        check_namespace(prefix.namespace)
        if prefix.tokens_b64 is not None:
            tokens = decode_tokens_b64(prefix.tokens_b64, settings.max_tokens)
        else:
            tokens = pack_tokens(prefix.tokens or [], settings.max_tokens)
        held = caller.held(prefix.namespace)
        found.append(
            Candidate(held, tokens) if caller.unbounded else Candidate(held, tokens, caller.sees)
        )
    return found


def state(row: StateRow) -> State:
    """What everybody may know of a state."""
    return State(
        state_id=row.state_id,
        page_id=row.page_id,
        kind=row.kind,  # type: ignore[arg-type]  # the table's CHECK allows no other
        token_count=row.token_count,
        logical_bytes=row.logical_bytes,
        created_at_ms=row.created_at_ms,
    )


def state_info(row: StateRow, held: str, pin: Pin | None) -> StateInfo:
    """What operators see of a state; its namespace is given as it is held."""
    tenant, name = split(held)
    return StateInfo(
        **state(row).model_dump(),
        namespace=name,
        tenant=tenant,
        status=row.status,  # type: ignore[arg-type]  # the table's CHECK allows no other
        touched_at_ms=row.touched_at_ms,
        hits=row.hits,
        pin=None
        if pin is None
        else StatePin(
            expires_at_ms=pin.expires_at_ms,
            reason=pin.reason,
            actor=pin.actor,
            created_at_ms=pin.created_at_ms,
        ),
    )


def state_detail(
    row: StateRow,
    held: str,
    parts: Sequence[ComponentRow],
    why: Evidence | None,
    pinned: Pin | None,
) -> StateDetail:
    """A state with what it is made of and why it is out of service."""
    return StateDetail(
        **state_info(row, held, pinned).model_dump(),
        components=components(parts),
        kv_descriptor=descriptor(row),
        evidence=None if why is None else evidence(why),
    )


def components(rows: Sequence[ComponentRow]) -> list[Component]:
    """Components in wire order."""
    return [
        Component(
            name=row.name,  # type: ignore[arg-type]  # admission allows no other
            bytes=row.raw_bytes,
            digest=None if row.digest is None or row.by_blocks else row.digest.hex(),
            blocks_digest=row.digest.hex() if row.digest is not None and row.by_blocks else None,
        )
        for row in rows
    ]


def miss(value: Miss) -> cache_schemas.Miss:
    """Why a candidate found nothing."""
    return cache_schemas.Miss(
        reason=value.reason.value,
        evicted_ago=value.evicted_ago,  # type: ignore[arg-type]  # from a fixed set
        held_in_namespace=None
        if value.other_namespace is None
        else split(value.other_namespace)[1],
        differing_fields=value.differing_fields or None,
    )


def namespace(row: NamespaceRow) -> NamespaceInfo:
    """A namespace with its warnings."""
    return NamespaceInfo(
        namespace=split(row.name)[1],
        tenant=row.tenant,
        identity=None if row.identity is None else document(row.identity),
        identity_digest=None if row.identity_digest is None else row.identity_digest.hex(),
        warnings=warnings(row),
        mode=row.mode,  # type: ignore[arg-type]  # only changed through the schema
        min_tokens=row.min_tokens,
        max_entries=row.max_entries,
        max_stored_bytes=row.max_stored_bytes,
        entries=row.entries,
        stored_bytes=row.stored_bytes,
        logical_bytes=row.logical_bytes,
        created_at_ms=row.created_at_ms,
        write_amplification=write_amplification(row.new_raw_bytes, row.new_row_bytes),
    )


def write_amplification(new_bytes: int, new_row_bytes: int) -> WriteAmplification:
    """What growing prefixes have cost."""
    return WriteAmplification(
        new_bytes=new_bytes,
        new_row_bytes=new_row_bytes,
        ratio=round(new_bytes / new_row_bytes, 4) if new_row_bytes else None,
    )


def stats(figures: Mapping[str, Any]) -> Stats:
    """Figures of a whole store (`app.engine.desk.figures`)."""
    counts, usage = figures["counts"], figures["usage"]
    return Stats(
        live=counts["live"],
        recording=counts["recording"],
        quarantined=counts["quarantined"],
        namespaces=counts["namespaces"],
        leases_held=figures["leases_held"],
        logical_bytes=counts["logical_bytes"],
        block_count=counts["blocks"],
        block_raw_bytes=counts["block_raw_bytes"],
        block_stored_bytes=counts["block_stored_bytes"],
        stored_bytes=usage.stored_bytes,
        reserved_bytes=usage.reserved_bytes,
        budget_bytes=figures["budget_bytes"],
        max_entries=figures["max_entries"],
        block_file_bytes=figures["block_store"].file_bytes,
        wal_bytes=figures["wal_bytes"],
        free_disk_bytes=figures["free_disk_bytes"],
        write_amplification=write_amplification(counts["new_raw_bytes"], counts["new_row_bytes"]),
        counters=[
            CounterInfo(name=name, label=label, value=value)
            for (name, label), value in sorted(figures["counters"].items())
        ],
    )


async def selection(wanted: BlocksWanted) -> Selection:
    """Which blocks the client wants; its list is read in a thread when it is long."""
    if len(wanted.have) > _DIGESTS_IN_THREAD:
        have = await asyncio.to_thread(_digests, wanted.have)
    else:
        have = _digests(wanted.have)
    return Selection(have, None if wanted.tokens is None else (wanted.tokens[0], wanted.tokens[1]))


def _digests(texts: Sequence[str]) -> frozenset[bytes]:
    return frozenset(bytes.fromhex(text) for text in texts)


def descriptor(row: StateRow) -> dict[str, object] | None:
    """The KV descriptor as it was given."""
    if row.kv_descriptor is None:
        return None
    found: dict[str, object] = document(row.kv_descriptor)
    return found


def announced(parts: Sequence[AnnouncedComponent]) -> dict[str, int]:
    """Component sizes by name.

    Raises:
        ApiProblem: a name comes twice.
    """
    sizes = {part.name: part.bytes for part in parts}
    if len(sizes) != len(parts):
        raise ApiProblem("invalid_payload", "A component is announced twice.", "components")
    return {str(name): size for name, size in sizes.items()}


def evidence(value: Evidence) -> EvidenceInfo:
    """Why a state is out of service."""
    return EvidenceInfo(
        failure_class=value.failure_class,
        reason=value.reason,
        reported_by=value.reported_by,  # type: ignore[arg-type]  # from a fixed set
        component=value.component,
        first_bad_block=value.seq,
        expected_digest=None if value.expected_digest is None else value.expected_digest.hex(),
        actual_digest=None if value.actual_digest is None else value.actual_digest.hex(),
        lease_id=value.lease_id,
        client=value.client,
        at_ms=value.at_ms,
        verified_at_ms=value.verified_at_ms,
        intact=value.intact,
    )
