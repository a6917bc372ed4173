"""JSON that lies in a column of the database, which nothing proves: read here, or found damaged. A leaf."""

from __future__ import annotations

import json
from typing import Any

from storage.errors import StoreDamaged


def document(text: str) -> Any:
    """What a column holds that only ever got JSON.

    Raises:
        StoreDamaged: it is none.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        raise StoreDamaged("a document in the database is not JSON any more") from error
