"""The bytes of an RFC 9457 problem; also used where there is no app yet to answer with."""

from __future__ import annotations

import json
from typing import Any


def problem_body(
    status: int,
    code: str,
    title: str,
    detail: str,
    request_id: str | None = None,
    **extra: Any,
) -> bytes:
    """A problem as JSON. `extra` members come last; None members are left out."""
    members = {
        "type": f"urn:statehold:problem:{code}",
        "title": title,
        "status": status,
        "code": code,
        "detail": detail,
        "request_id": request_id,
        **extra,
    }
    return json.dumps({key: value for key, value in members.items() if value is not None}).encode()
