"""Engine values as schemas, where several routes need the same translation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Final

from app.api.problems import ApiProblem
from app.api.schemas import cache as cache_schemas
from app.api.schemas.admin import EvidenceInfo, StateInfo
from app.api.schemas.common import Component, Prefix, State
from app.api.schemas.namespaces import NamespaceInfo
from app.api.schemas.records import AnnouncedComponent
from app.engine.identity import check_namespace, decode_tokens_b64, pack_tokens
from app.engine.lookup import Candidate
from app.engine.misses import Miss
from app.engine.registry import warnings
from app.settings import Settings
from storage.rows import ComponentRow, Evidence, NamespaceRow, StateRow

_DECODE_IN_THREAD_CHARACTERS: Final = 1 << 20


async def candidates(prefixes: Sequence[Prefix], settings: Settings) -> list[Candidate]:
    """Checked namespaces and packed tokens; in a thread when they are long.

    Raises:
        InvalidNamespace, InvalidTokens: with the field.
    """
    size = sum(len(p.tokens_b64 or "") + 8 * len(p.tokens or ()) for p in prefixes)
    if size > _DECODE_IN_THREAD_CHARACTERS:
        return await asyncio.to_thread(_candidates, prefixes, settings)
    return _candidates(prefixes, settings)


def _candidates(prefixes: Sequence[Prefix], settings: Settings) -> list[Candidate]:
    found = []
    for prefix in prefixes:
        check_namespace(prefix.namespace)
        if prefix.tokens_b64 is not None:
            tokens = decode_tokens_b64(prefix.tokens_b64, settings.max_tokens)
        else:
            tokens = pack_tokens(prefix.tokens or [], settings.max_tokens)
        found.append(Candidate(prefix.namespace, tokens))
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


def state_info(row: StateRow, namespace: str) -> StateInfo:
    """What operators see of a state."""
    return StateInfo(
        **state(row).model_dump(),
        namespace=namespace,
        status=row.status,  # type: ignore[arg-type]  # the table's CHECK allows no other
        touched_at_ms=row.touched_at_ms,
        hits=row.hits,
    )


def components(rows: Sequence[ComponentRow]) -> list[Component]:
    """Components in wire order."""
    return [
        Component(
            name=row.name,  # type: ignore[arg-type]  # admission allows no other
            bytes=row.raw_bytes,
            digest=None if row.digest is None else row.digest.hex(),
        )
        for row in rows
    ]


def miss(value: Miss) -> cache_schemas.Miss:
    """Why a candidate found nothing."""
    return cache_schemas.Miss(
        reason=value.reason.value,
        evicted_ago=value.evicted_ago,  # type: ignore[arg-type]  # from a fixed set
        held_in_namespace=value.other_namespace,
        differing_fields=value.differing_fields or None,
    )


def namespace(row: NamespaceRow) -> NamespaceInfo:
    """A namespace with its warnings."""
    return NamespaceInfo(
        namespace=row.name,
        identity=None if row.identity is None else json.loads(row.identity),
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
    )


def descriptor(row: StateRow) -> dict[str, object] | None:
    """The KV descriptor as it was given."""
    if row.kv_descriptor is None:
        return None
    found: dict[str, object] = json.loads(row.kv_descriptor)
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
        at_ms=value.at_ms,
    )
