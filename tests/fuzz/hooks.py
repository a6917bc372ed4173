"""What schemathesis is told about the service; loaded by its command (tests/fuzz/openapi.py).

Data made from schemas alone rarely goes all the way: an upload has to have the announced length. Half of
the good cases are made to fit what went before, so that states are really recorded, found, leased and
damaged; wrong cases and those that cover the schema stay exactly as they were made. What would lead
every later case astray, as a store that is switched off, is put back at once.

The environment says: FUZZ_URL; FUZZ_OPERATOR, a secret for putting things back;
FUZZ_TOKENS, secrets that cases take in turn, separated by commas; FUZZ_KEPT, ids of
tokens that no case may revoke.
"""

from __future__ import annotations

import itertools
import os
import random
from typing import Any, Final

import httpx
import schemathesis
from blake3 import blake3
from hypothesis import strategies as st

from tests.support import native
from tests.support.client import b64

_ABSENT: Final = "01938c0d-e000-7000-8000-000000000000"
_PREFIXES: Final = [list(range(1, count)) for count in (2, 4, 9, 17)]
_NAMESPACES: Final = ("fuzz/a", "fuzz/b")
_LIMITS: Final = (
    "max_stored_bytes",
    "max_logical_bytes",
    "max_entries",
    "max_in_flight_records",
    "max_requests_per_second",
    "max_bytes_per_second",
)
_MOST_REMEMBERED: Final = 4096

_secrets: Final = [text for text in os.environ.get("FUZZ_TOKENS", "").split(",") if text]
_in_turn: Final = itertools.cycle(_secrets)
_kept: Final = os.environ.get("FUZZ_KEPT", "").split(",")
_random: Final = random.Random(20261203)
# State id -> what a recording announced: component name and bytes.
_announced: Final[dict[str, tuple[str, int]]] = {}

_secret: Final = os.environ.get("FUZZ_OPERATOR")
_operator: Final = httpx.Client(
    base_url=os.environ.get("FUZZ_URL", "http://localhost"),
    headers={"Authorization": f"Bearer {_secret}"} if _secret else {},
    timeout=30,
)


def _bytes_of(state_id: str, size: int) -> bytes:
    """The same for the same recording; sometimes of one value, so that blocks are shared."""
    seed = int.from_bytes(blake3(state_id.encode()).digest()[:4], "little")
    return bytes(size) if seed % 3 == 0 else random.Random(seed).randbytes(size)


def _streams() -> st.SearchStrategy[bytes]:
    values = st.binary(max_size=64).map(native.value)
    whole = st.dictionaries(st.integers(0, 3), values, max_size=3).map(native.stream)
    return st.one_of(st.binary(max_size=200), whole)


schemathesis.openapi.media_type("application/vnd.statehold.blocks", _streams())


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """Give the case a token, and half of the good ones something to find."""
    if _secrets:
        case.headers["Authorization"] = f"Bearer {next(_in_turn)}"
    call = (case.method.upper(), case.operation.path)
    if call == ("DELETE", "/admin/v1/tokens/{token_id}") and (
        (case.path_parameters or {}).get("token_id") in _kept
    ):
        case.path_parameters["token_id"] = _ABSENT
    meta = case.meta
    if (
        meta is None
        or meta.generation.mode.is_negative
        or meta.phase.name.value not in ("fuzzing", "stateful")
    ):
        return
    if isinstance(case.body, dict) and case.body.get("kind") == "backup":
        case.body["name"] = _random.choice(("one", "two"))
    fit = _FITTING.get(call)
    if fit is not None and _random.random() < (0.9 if meta.phase.name.value == "stateful" else 0.5):
        fit(case)


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    """Remember what was announced, and put back what would stop everything that follows."""
    call = (case.method.upper(), case.operation.path)
    if response.status_code == 201 and call == ("POST", "/v1/records"):
        (*_, last) = case.body["components"]
        _announced[response.json()["state_id"]] = (last["name"], last["bytes"])
        if len(_announced) > _MOST_REMEMBERED:
            _announced.pop(next(iter(_announced)))
    elif response.status_code != 200:
        return
    elif call == ("PUT", "/admin/v1/mode"):
        _operator.put("/admin/v1/mode", json={"mode": None})
    elif call == ("PUT", "/admin/v1/tenants/{name}"):
        name = response.json()["tenant"] or "default"
        _operator.put(f"/admin/v1/tenants/{name}", json=dict.fromkeys(_LIMITS))
    elif call == ("PATCH", "/admin/v1/limits"):
        _operator.patch("/admin/v1/limits", json=dict.fromkeys(response.json()["limits"]))
    elif call == ("PATCH", "/admin/v1/namespaces") and case.body["namespace"] in _NAMESPACES:
        _operator.patch(
            "/admin/v1/namespaces",
            json={"namespace": case.body["namespace"], "mode": None, "min_tokens": None}
            | dict.fromkeys(("max_entries", "max_stored_bytes")),
        )


def _prefix() -> dict[str, Any]:
    return {
        "namespace": _random.choice(_NAMESPACES),
        "tokens_b64": b64(_random.choice(_PREFIXES)),
    }


def _fit_admission(case: Any) -> None:
    name, kind = _random.choice((("full", "full_state"), ("recurrent", "recurrent_only")))
    case.body = {
        **_prefix(),
        "kind": kind,
        "components": [{"name": name, "bytes": _random.choice((1, 64, 5000))}],
        "replace": _random.random() < 0.5,
    }


def _fit_whole(case: Any) -> None:
    _fit_admission(case)
    (component,) = case.body["components"]
    case.body = {"meta": case.body, component["name"]: "x" * component["bytes"]}


def _fit_query(case: Any) -> None:
    if isinstance(case.body, dict):
        case.body["candidates"] = [_prefix() for _ in range(_random.randint(1, 3))]
        if _random.random() < 0.5:
            case.body["accept_kinds"] = ["full_state", "recurrent_only"]
        if "acquire" in case.body or case.operation.path == "/v1/lookup":
            case.body["acquire"] = True


def _fit_component(case: Any) -> tuple[str, bytes]:
    """Name the announced component; the recording's id and the bytes that fit it."""
    state_id = str(case.path_parameters.get("state_id"))
    if state_id not in _announced and _announced:
        state_id = _random.choice(list(_announced)[-8:])
    name, size = _announced.get(state_id, ("full", 64))
    case.path_parameters |= {"state_id": state_id, "name": name}
    return state_id, _bytes_of(state_id, min(size, 1 << 20))


def _fit_upload(case: Any) -> None:
    _, case.body = _fit_component(case)


def _fit_need(case: Any) -> None:
    _, data = _fit_component(case)
    case.body = {"digests": [native.digest(data).hex()]}


def _fit_blocks(case: Any) -> None:
    _, data = _fit_component(case)
    case.body = native.stream({0: native.value(data)})


_FITTING: Final = {
    ("POST", "/v1/records"): _fit_admission,
    ("POST", "/v1/states"): _fit_whole,
    ("POST", "/v1/lookup"): _fit_query,
    ("POST", "/v1/restore"): _fit_query,
    ("POST", "/v1/explain"): _fit_query,
    ("PUT", "/v1/records/{state_id}/components/{name}"): _fit_upload,
    ("POST", "/v1/records/{state_id}/components/{name}/need"): _fit_need,
    ("PUT", "/v1/records/{state_id}/components/{name}/blocks"): _fit_blocks,
}
