"""/, /docs and /ui: the dashboard and the interactive description, from files of ours alone.

Invariants: only what lies in `app/ui` at the start is served, so that no path of a request ever meets
the file system; no page may load or run anything from elsewhere, or be framed. What lies below
`vendor/` has its version in its path and never changes; the rest is asked for anew by its ETag.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from blake3 import blake3
from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

router = APIRouter(include_in_schema=False)

_FOLDER: Final = Path(__file__).parents[1] / "ui"
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
_POLICY: Final = "; ".join(
    [
        "default-src 'self'",
        *(
            f"{what} 'none'"
            for what in ("base-uri", "form-action", "frame-ancestors", "object-src")
        ),
    ]
)
# The dashboard never makes markup out of text, so the browser may refuse whoever tries.
_DASHBOARD_POLICY: Final = f"{_POLICY}; require-trusted-types-for 'script'; trusted-types 'none'"
# Swagger UI has its icons in its style sheet.
_DOCS_POLICY: Final = f"{_POLICY}; img-src 'self' data:"
_READ: Final = ["GET", "HEAD"]


@dataclass(frozen=True, slots=True)
class Asset:
    """One file as it is sent."""

    content: bytes
    media_type: str
    etag: str
    immutable: bool


def _assets() -> dict[str, Asset]:
    found = {}
    for path in sorted(_FOLDER.rglob("*")):
        if path.suffix not in _TYPES or not path.is_file():
            continue
        content = path.read_bytes()
        found[path.relative_to(_FOLDER).as_posix()] = Asset(
            content,
            _TYPES[path.suffix],
            f'"{blake3(content).hexdigest()[:32]}"',
            path.is_relative_to(_FOLDER / "vendor"),
        )
    return found


_ASSETS: Final = _assets()


@router.api_route("/", methods=_READ)
async def dashboard(request: Request) -> Response:
    """The operators' page; what it shows comes from the routes it calls, under their access rules."""
    return _answer(request, "index.html", _DASHBOARD_POLICY)


@router.api_route("/docs", methods=_READ)
async def docs(request: Request) -> Response:
    """Swagger UI over `/openapi.json`."""
    return _answer(request, "docs.html", _DOCS_POLICY)


@router.api_route("/ui/{name:path}", methods=_READ)
async def asset(name: str, request: Request) -> Response:
    """A file that the pages load."""
    return _answer(request, name, _POLICY)


def _answer(request: Request, name: str, policy: str) -> Response:
    found = _ASSETS.get(name)
    if found is None:
        raise HTTPException(404)
    headers = {
        "ETag": found.etag,
        "Cache-Control": ("public, max-age=31536000, immutable" if found.immutable else "no-cache"),
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
    }
    held = {
        tag.strip().removeprefix("W/")
        for tag in request.headers.get("if-none-match", "").split(",")
    }
    if found.etag in held:
        return Response(status_code=304, headers=headers)
    # The server drops the body of an answer to HEAD and keeps its length.
    return Response(found.content, headers=headers, media_type=found.media_type)
