"""Whose states a question is about."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TypeAlias

from sqlalchemy import ColumnElement, func, select

from storage.metadata.schema import namespace

# Of a namespace's row, of a tenant, of these namespaces' rows, or of the whole store.
Scope: TypeAlias = int | str | Sequence[int] | None


def within(column: ColumnElement[int], scope: Scope) -> tuple[ColumnElement[bool], ...]:
    """That a namespace's row lies in a scope."""
    if scope is None:
        return ()
    if isinstance(scope, int):
        return (column == scope,)
    if isinstance(scope, str):
        mine = select(namespace.c.id).where(namespace.c.tenant == scope)
        return (column.in_(mine),)
    # One parameter however many they are.
    listed = func.json_each(json.dumps(list(scope))).table_valued("value")
    return (column.in_(select(listed.c.value)),)
