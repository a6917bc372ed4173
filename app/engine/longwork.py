"""Which kinds of jobs there are: each is a file of its own, and listed here."""

from __future__ import annotations

from collections.abc import Callable

from app.engine.backup import BackupJob
from app.engine.compacting import CompactJob
from app.engine.jobs import Kind
from app.engine.maintenance import Maintenance
from app.engine.policy import Policy
from app.engine.quarantine import Quarantine
from app.engine.reader import Reader
from app.engine.scrubbing import Scrubber
from storage.store import Store


def kinds(
    store: Store,
    policy: Policy,
    reader: Reader,
    quarantine: Quarantine,
    compact: Callable[[], bool],
) -> dict[str, Kind]:
    """The kinds by name. `compact`: as for `CompactJob`."""
    scrubber = Scrubber(store, reader, quarantine)
    maintenance = Maintenance(store)
    backup = BackupJob(store, policy, scrubber)
    return {
        "verify": Kind(scrubber.verify, "bytes"),
        "reclaim": Kind(maintenance.reclaim, "blocks"),
        "checkpoint": Kind(maintenance.checkpoint, "bytes"),
        "compact": Kind(CompactJob(store, compact).compact, "bytes", alone=True),
        "backup": Kind(backup.back_up, "bytes", backup.check),
    }
