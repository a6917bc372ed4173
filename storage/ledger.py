"""Small writes that touch no block: leases, namespaces, settings, last uses and counters.

Each is one short transaction. Leases and notes commit with NORMAL: kill -9 loses none, power loss at most
the last moments, and no rule rests on those (a lease that is gone holds nothing; its state is
verified while it is read all the same). What an operator sets commits with FULL.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from storage.clock import boot_ms, wall_ms
from storage.errors import NotHeld
from storage.metadata import (
    audit,
    counters,
    history,
    jobs,
    leases,
    namespaces,
    settings,
    states,
    tenants,
    tokens,
)
from storage.metadata.database import Database
from storage.rows import LeaseRow, NamespaceRow, TokenRow


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
            leases.add(connection, lease_id, row, ttl_ms, boot_ms())

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

    # ---- namespaces, settings --------------------------------------------------------------

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
            return namespaces.by_id(connection, row.id)

    def set_setting(self, key: str, value: str | None) -> None:
        """Change a setting for all workers."""
        with self._db.write(durable=True) as connection:
            settings.write(connection, key, value)

    def change_setting(self, key: str, change: Callable[[str | None], str | None]) -> str | None:
        """Read a setting and change it for all workers in one transaction; returns what is kept now."""
        with self._db.write(durable=True) as connection:
            value = change(settings.read(connection, key))
            settings.write(connection, key, value)
            return value

    # ---- access ----------------------------------------------------------------------------

    def add_token(self, row: TokenRow) -> None:
        """Keep a new access token."""
        with self._db.write(durable=True) as connection:
            tokens.add(connection, row)

    def revoke_token(self, token_id: str) -> None:
        """It is good for nothing from this commit on.

        Raises:
            NotHeld: there is none of that id.
        """
        with self._db.write(durable=True) as connection:
            if tokens.find(connection, token_id) is None:
                raise NotHeld("no such token")
            tokens.revoke(connection, token_id, wall_ms())

    def tokens_used(self, uses: Mapping[str, int]) -> None:
        """Note when tokens were last used."""
        with self._db.write(durable=False) as connection:
            tokens.used(connection, uses)

    def set_tenant_limits(self, name: str, values: Mapping[str, int | None]) -> None:
        """Change limits of a tenant for all workers."""
        with self._db.write(durable=True) as connection:
            tenants.set_limits(connection, name, values)

    def audit(self, values: Mapping[str, object]) -> None:
        """Add to the audit log; keys are its columns but for the time."""
        with self._db.write(durable=True) as connection:
            audit.add(connection, {"at_ms": wall_ms(), **values})

    # ---- small notes -----------------------------------------------------------------------

    def note(
        self,
        touches: Mapping[str, tuple[int, int]],
        counts: Mapping[tuple[str, str], int],
        minute: int,
        remembered: Mapping[tuple[str, str], int],
    ) -> None:
        """Write a batch of last uses and counter deltas, and those to be remembered by the minute."""
        with self._db.write(durable=False) as connection:
            if touches:
                states.touch(connection, touches)
            if counts:
                counters.add(connection, counts)
            if remembered:
                history.add(connection, minute, remembered)

    def trim_history(self, oldest: int, newest: int, most_minutes: int) -> bool:
        """Forget growth outside these minutes, a bounded part of it; whether there is more."""
        with self._db.write(durable=False) as connection:
            return history.trim(connection, oldest, newest, most_minutes)

    def sweep_leases(self, ended_before_boot_ms: int) -> tuple[int, int]:
        """Forget leases that ended long ago; how many, and how many of them ran out unreleased."""
        with self._db.write(durable=False) as connection:
            return leases.sweep(connection, ended_before_boot_ms, 1000)

    # ---- jobs ------------------------------------------------------------------------------

    def start_job(
        self,
        *,
        job_id: str,
        kind: str,
        owner: str,
        actor: str,
        arguments: str,
        unit: str,
        not_beside: Collection[str],
        keep: int,
    ) -> None:
        """A job begins; of those that have ended the newest `keep` are remembered.

        Raises:
            Conflict: one of its kind is running, or of the kinds in `not_beside`; says which.
        """
        with self._db.write(durable=True) as connection:
            jobs.start(
                connection,
                job_id=job_id,
                kind=kind,
                owner=owner,
                actor=actor,
                arguments=arguments,
                unit=unit,
                not_beside=not_beside,
            )
            jobs.trim(connection, keep)

    def advance_job(
        self, job_id: str, done: int, total: int, bookmark: tuple[str, str] | None = None
    ) -> None:
        """How far a job is, with a setting (key, value) that a later job can go on from."""
        with self._db.write(durable=False) as connection:
            jobs.advance(connection, job_id, done, total)
            if bookmark is not None:
                settings.write(connection, *bookmark)

    def cancel_job(self, job_id: str) -> None:
        """Whoever runs it sees this soon; one that has ended stays as it ended."""
        with self._db.write(durable=True) as connection:
            jobs.ask_to_stop(connection, job_id)

    def finish_job(
        self, job_id: str, status: str, *, result: str | None = None, error: str | None = None
    ) -> bool:
        """A running job ends. False if it had ended."""
        with self._db.write(durable=True) as connection:
            return jobs.finish(connection, job_id, status, result=result, error=error)

    def hand_over_job(self, job_id: str) -> bool:
        """A running job is the server's from now on. False if it had ended, or was asked to."""
        with self._db.write(durable=True) as connection:
            return jobs.hand_over(connection, job_id)

    def finish_handed_over_job(
        self, status: str, *, result: str | None = None, error: str | None = None
    ) -> bool:
        """The job that was handed over ends, all of it done if it is `done`. False without one."""
        with self._db.write(durable=True) as connection:
            row = jobs.handed_over(connection)
            if row is None:
                return False
            if status == "done":
                jobs.advance(connection, row.job_id, row.total, row.total)
            return jobs.finish(connection, row.job_id, status, result=result, error=error)

    def interrupt_all_jobs(self) -> int:
        """Every job that is said to run has failed: whoever ran it is gone. Returns how many.

        Writes only where there is one, so that a start needs no more room than it has to.
        """
        with self._db.read() as connection:
            if not jobs.owners(connection) and jobs.handed_over(connection) is None:
                return 0
        with self._db.write(durable=True) as connection:
            return jobs.interrupt(connection, None)

    def interrupt_jobs(self, alive: Callable[[], Collection[str]]) -> int:
        """Jobs whose instance is gone have failed. Returns how many.

        Args:
            alive: asked after the owners were read, so that an instance that came meanwhile is not
                taken for a dead one.
        """
        with self._db.read() as connection:
            owners = jobs.owners(connection)
        if not owners:
            return 0
        dead = set(owners) - set(alive())
        if not dead:
            return 0
        with self._db.write(durable=True) as connection:
            return jobs.interrupt(connection, sorted(dead))
