"""Request headers: digests, ranges, tags, codings, preferences, leases. One line a header."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Final

from python_multipart.multipart import parse_options_header
from starlette.requests import Request

from app.api import intake, states
from app.api.problems import ApiProblem

_SIZE: Final = 1000
_ETAG: Final = '"' + "ab" * 32 + '"'
_NAMES: Final = (
    b"content-digest",
    b"range",
    b"if-range",
    b"accept-encoding",
    b"prefer",
    b"if-none-match",
    b"content-length",
    b"statehold-lease",
    b"content-type",
)


def seeds() -> Iterator[bytes]:
    zeros = "A" * 43 + "="
    for digest in (
        f"sha-256=:{zeros}:",
        f"sha-512=:{'A' * 86}==:, sha-256=:{zeros}:",
        "md5=:AA==:",
    ):
        yield digest.encode()
    for text in (
        "bytes=0-9",
        "bytes=-5",
        "bytes=5-",
        "bytes=9-5",
        "bytes=0-1,3-4",
        "bytes=999-1000",
    ):
        yield f"\n{text}\n{_ETAG}".encode()
    yield b"\n\n\ngzip;q=0.5, zstd;q=0, zstd\nrespond-async, wait=10\n*"
    yield b'\n\n\nzstd\nwait="3"; x\n' + _ETAG.replace('"', "").encode() + b"\n17"
    yield b"\n\n\n\nwait=\xb2\n\n\xb3"
    yield b'\n\n\n\n\n\n\n"01938c0d-e000-7000-8000-000000000000"\nmultipart/form-data; boundary="x"'


def target(data: bytes) -> None:
    lines = data.split(b"\n")[: len(_NAMES)]
    headers = [
        (name, line.strip())
        for name, line in zip(_NAMES, lines, strict=False)
        if line and b"\r" not in line and b"\0" not in line
    ]
    request: Any = Request({"type": "http", "method": "GET", "headers": headers})
    for algorithm, digest in (_of(intake.content_digests, request) or {}).items():
        assert len(digest) == {"sha-256": 32, "sha-512": 64}[algorithm]
    assert intake.takes_zstd(request) in (True, False)
    assert 0 <= intake.wait_preference(request, 60.0) <= 60
    length = intake.content_length(request)
    assert length is None or length >= 0
    part: Any = SimpleNamespace(raw_bytes=_SIZE)
    found = _of(lambda: states._range(request, part, _ETAG))
    if found is not None:
        start, end, partial = found
        assert 0 <= start < end <= _SIZE
        assert partial or (start, end) == (0, _SIZE)
    assert states._matches(request.headers.get("if-none-match"), _ETAG) in (True, False)
    _of(states.lease_id_of, request.headers.get("statehold-lease"))
    parse_options_header(request.headers.get("content-type", ""))


def _of(read: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return read(*arguments)
    except ApiProblem as problem:
        # What is refused is not told again.
        assert len(problem.detail) < 200
        return None
