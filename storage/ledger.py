"""Small writes that touch no block: leases, namespaces, settings, last uses and counters.

Each is one short transaction. Leases and notes commit with NORMAL: kill -9 loses none, power loss at most
the last moments, and no rule rests on those (a lease that is gone holds nothing; its state is
verified while it is read all the same). What an operator sets commits with FULL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from storage.clock import boot_ms
from storage.errors import NotHeld
from storage.metadata import counters, leases, namespaces, settings, states
from storage.metadata.database import Database
from storage.rows import LeaseRow, NamespaceRow


class Ledger:
    """The small writes of one `Database`. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._db = database

    # ---- leases ----------------------------------------------------------------------------

    def lease(self, lease_id: str, state_id: str, ttl_ms: int) -> None:
        """Hold a live state.

        Raises:
            NotHeld: it is not live (any more).
        """
        with self._db.write(durable=False) as connection:
            row = states.by_state_id(connection, state_id)
            if row is None or row.status != "live":
                raise NotHeld("the state is gone")
            leases.add(connection, lease_id, state_id, ttl_ms, boot_ms())

    def change_lease(
        self, lease_id: str, change: Callable[[LeaseRow, int], str | int | None]
    ) -> LeaseRow | None:
        """Read a lease and change it in one transaction.

        Args:
            change: gets the lease and the boot clock (ms); returns a new end (int, boot ms),
                an outcome (str), or None to leave it.

        Returns:
            The lease as it was, None if there is none of that id.
        """
        with self._db.write(durable=False) as connection:
            row = leases.find(connection, lease_id)
            if row is not None:
                wanted = change(row, boot_ms())
                if isinstance(wanted, str):
                    leases.finish(connection, lease_id, wanted)
                elif wanted is not None:
                    leases.renew(connection, lease_id, wanted)
            return row

    # ---- namespaces, settings, small notes -------------------------------------------------

    def change_namespace(
        self, name: str, change: Callable[[NamespaceRow], Mapping[str, object]], *, create: bool
    ) -> NamespaceRow:
        """Read a namespace and change columns of it in one transaction.

        Raises:
            NotHeld: there is none of that name and `create` is False.
        """
        with self._db.write(durable=True) as connection:
            row = (
                namespaces.ensure(connection, name) if create else namespaces.find(connection, name)
            )
            if row is None:
                raise NotHeld("no such namespace")
            values = change(row)
            if values:
                namespaces.change(connection, row.id, dict(values))
            changed = namespaces.find(connection, name)
            assert changed is not None
            return changed

    def set_setting(self, key: str, value: str | None) -> None:
        """Change a setting for all workers."""
        with self._db.write(durable=True) as connection:
            settings.write(connection, key, value)

    def note(
        self,
        touches: Mapping[str, tuple[int, int]],
        counts: Mapping[tuple[str, str], int],
    ) -> None:
        """Write a batch of last uses and counter deltas."""
        with self._db.write(durable=False) as connection:
            if touches:
                states.touch(connection, touches)
            if counts:
                counters.add(connection, counts)

    def sweep_leases(self, ended_before_boot_ms: int) -> int:
        """Forget leases that ended long ago."""
        with self._db.write(durable=False) as connection:
            return leases.sweep(connection, ended_before_boot_ms, 1000)
