"""JSON bodies through their schemas to the engine's own checks, and what is said of those that are wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, RootModel

from app.api import views
from app.api.parsing import LAYOUTS, LISTS, SMALL, validated
from app.api.problems import ApiProblem, validation_answer
from app.api.schemas.access import TenantLimitsChange, TokenRequest
from app.api.schemas.blocks import NeedRequest
from app.api.schemas.cache import LookupRequest, ReleaseRequest, RestoreRequest
from app.api.schemas.evictions import EvictionRequest, PinRequest
from app.api.schemas.explain import ExplainRequest
from app.api.schemas.jobs import JobRequest
from app.api.schemas.namespaces import NamespaceChange, RegisterRequest
from app.api.schemas.records import RecordRequest
from app.engine.derived import of_descriptor
from app.engine.errors import EngineError, InvalidPayload
from app.engine.geometry import given
from app.engine.payload import checked_payload


class _Job(RootModel[JobRequest]):
    """Any job."""


_MODELS: Final[list[tuple[type[BaseModel], Any]]] = [
    (RecordRequest, LAYOUTS),
    (LookupRequest, LISTS),
    (RestoreRequest, LISTS),
    (ExplainRequest, LISTS),
    (NeedRequest, LISTS),
    (ReleaseRequest, SMALL),
    (EvictionRequest, SMALL),
    (PinRequest, SMALL),
    (NamespaceChange, SMALL),
    (RegisterRequest, SMALL),
    (TokenRequest, SMALL),
    (TenantLimitsChange, SMALL),
    (_Job, SMALL),
]
_MOST_ANSWER_BYTES: Final = 64 << 10


def seeds() -> Iterator[bytes]:
    prefix = {"namespace": "n", "tokens_b64": "AQAAAAIAAAA="}
    descriptor = {
        **dict.fromkeys(("layer_start", "token_start", "k_idx_row_bytes", "component_count"), 0),
        **{"version": 1, "layer_end": 1, "layer_count": 1, "token_count": 2, "flags": 0},
        **{"k_type": "f16", "v_type": 1, "k_row_bytes": 4, "v_row_bytes": 4, "codec": 0},
        **{"v_element_bytes": 2, "payload_bytes": 16},
    }
    record = {
        **prefix,
        "kind": "kv",
        "components": [{"name": "kv", "bytes": 16}],
        "kv_descriptor": descriptor,
    }
    layout = {"rows": 2, "runs": [{"offset": 0, "stride": 8}], "element": "f16"}
    for model, body in (
        (0, record),
        (0, {**record, "geometry": {"kv": layout}}),
        (1, {"candidates": [prefix], "acquire": True, "ttl_s": 5}),
        (1, {"candidates": [{"namespace": "n", "tokens": [1, -5, 2**31]}]}),
        (2, {"candidates": [prefix], "blocks": {"have": ["ab" * 32], "tokens": [0, 1]}}),
        (3, {**prefix, "accept_kinds": ["kv"]}),
        (4, {"digests": ["00" * 32, "x"]}),
        (5, {"outcome": "failed", "failure": {"class": "io", "reason": "x"}}),
        (5, {"outcome": "restored", "import_ms": {"kv": 1.5}}),
        (6, {"namespace": "n", "target_bytes": 5}),
        (7, {"namespace": "n", "mode": "record"}),
        (8, {"namespace": "n", "identity": {"weights_digest": "x", "a": [1, {"b": None}]}}),
        (9, {"label": "t", "scopes": ["lookup"], "tenant": "", "namespaces": ["a*"]}),
        (10, {"max_entries": None}),
        (11, {"kind": "backup", "name": "a"}),
        (11, {"kind": "x" * 500}),
        (10, {"y" * 500: 1}),
    ):
        yield bytes([model]) + json.dumps(body).encode()


def target(data: bytes) -> None:
    if not data:
        return
    model, shape = _MODELS[data[0] % len(_MODELS)]
    try:
        body: Any = validated(model, data[1:], shape)
    except RequestValidationError as error:
        code, said = validation_answer(error)
        assert code in ("invalid_json", "invalid_request")
        assert len(json.dumps(said)) < _MOST_ANSWER_BYTES
        return
    # What was taken is what would be taken again.
    again = body.model_dump_json(exclude_unset=True, by_alias=True).encode()
    assert validated(model, again, shape) == body or not _is_plain(body)
    if isinstance(body, RecordRequest):
        _admission(body)


def _is_plain(body: BaseModel) -> bool:
    """Whether there is no number too great for a double in what is taken as it comes."""
    try:
        json.dumps(body.model_dump(by_alias=True), allow_nan=False)
    except ValueError:
        return False
    return True


def _admission(body: RecordRequest) -> None:
    try:
        sizes = views.announced(body.components)
        ordered, text = checked_payload(body.kind, sizes, body.kv_descriptor, 2)
    except (EngineError, ApiProblem):
        return
    assert sum(ordered.values()) == sum(sizes.values())
    if text is not None:
        assert json.loads(text) == body.kv_descriptor
        of_descriptor(json.loads(text), ordered["kv"])
    for name, layout in (body.geometry or {}).items():
        try:
            given(layout, sizes.get(name, 0))
        except InvalidPayload as error:
            assert error.code == "invalid_geometry"
