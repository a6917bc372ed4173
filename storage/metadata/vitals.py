"""The figures that monitoring asks for every few seconds: none costs a scan of what grows with states.

Totals are kept where they change; what is counted here is small (recordings, leases held, pins, quarantined
states up to a bound) or one row for each namespace.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, func, literal, select

from storage.metadata import leases, pins, settings, totals
from storage.metadata.schema import namespace, state
from storage.rows import Vitals

MOST_QUARANTINED_COUNTED: Final = 100_000

_QUARANTINED = select(func.count()).select_from(
    select(literal(1))
    .where(state.c.status == "quarantined")
    .limit(MOST_QUARANTINED_COUNTED)
    .subquery()
)
_NAMESPACES = select(
    func.count(),
    *(
        func.coalesce(func.sum(column), 0)
        for column in (
            namespace.c.logical_bytes,
            namespace.c.new_raw_bytes,
            namespace.c.new_row_bytes,
        )
    ),
)


def read(connection: Connection, now_boot_ms: int, now_ms: int) -> Vitals:
    """The figures of this moment; call it in a snapshot."""
    spaces, logical, new_raw, new_rows = connection.execute(_NAMESPACES).one()
    pinned, pinned_bytes = pins.total(connection, now_ms)
    page_bytes = _pragma(connection, "page_size")
    return Vitals(
        usage=totals.usage(connection),
        commit_counter=totals.commit_counter(connection),
        quarantined=connection.execute(_QUARANTINED).scalar_one(),
        leases_held=leases.count_held(connection, now_boot_ms),
        namespaces=spaces,
        logical_bytes=logical,
        new_raw_bytes=new_raw,
        new_row_bytes=new_rows,
        mode=settings.read(connection, "mode"),
        database_bytes=_pragma(connection, "page_count") * page_bytes,
        free_page_bytes=_pragma(connection, "freelist_count") * page_bytes,
        pins=pinned,
        pinned_bytes=pinned_bytes,
    )


def _pragma(connection: Connection, name: str) -> int:
    return int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())
