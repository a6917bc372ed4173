"""What counters grew by, minute for minute. Adds up over workers; housekeeping keeps it bounded.

Minutes are of the wall clock since 1970, so a clock that is set back adds to minutes that are there
already, and minutes that now lie ahead are kept only so far ahead as `trim` is told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, bindparam, delete, func, or_, select
from sqlalchemy.dialects.sqlite import insert

from storage.metadata.schema import history as t
from storage.metadata.statements import HotStatement, text

# Compiled once: it runs with every flush, for each counter that moved.
_new = insert(t).values(
    minute=bindparam("of_minute"),
    name=bindparam("of_name"),
    label=bindparam("of_label"),
    value=bindparam("by"),
)
_ADD = HotStatement(
    _new.on_conflict_do_update(
        index_elements=[t.c.minute, t.c.name, t.c.label],
        set_={"value": t.c.value + _new.excluded.value},
    )
)


def add(connection: Connection, minute: int, growth: Mapping[tuple[str, str], int]) -> None:
    """Add to what (name, label) grew by in a minute."""
    _ADD.many(
        connection,
        (
            {"of_minute": minute, "of_name": name, "of_label": label, "by": value}
            for (name, label), value in growth.items()
        ),
    )


def gathered(
    connection: Connection, first: int, last: int, step: int, names: Sequence[str]
) -> list[tuple[int, str, str, int]]:
    """(step, name, label, growth) of minutes `first` to `last`, in order of name and label.

    Steps are `step` minutes long and counted from 1970; those without growth are left out.
    """
    at = (t.c.minute // step).label("at")
    rows = connection.execute(
        select(at, t.c.name, t.c.label, func.sum(t.c.value))
        .where(t.c.minute >= first, t.c.minute <= last, t.c.name.in_(names))
        .group_by(t.c.name, t.c.label, at)
        .order_by(t.c.name, t.c.label, at)
    )
    return [
        (int(step_at), text(name), text(label), int(value)) for step_at, name, label, value in rows
    ]


def trim(connection: Connection, oldest: int, newest: int, most_minutes: int) -> bool:
    """Forget what lies outside `oldest` to `newest`, at most `most_minutes` of it before `oldest`.

    Returns:
        Whether there is more to forget.
    """
    first = connection.execute(select(func.min(t.c.minute))).scalar_one()
    if first is None:
        return False
    end = min(oldest, first + most_minutes)
    gone = connection.execute(delete(t).where(or_(t.c.minute < end, t.c.minute > newest))).rowcount
    # A damaged index may tell of minutes that nothing can be done about.
    return bool(end < oldest) and gone > 0
