"""Every metric there is: its name, what it says, its labels with all their values, and where it comes from.

docs/metrics.md repeats this table (a test compares them). A label's values are listed here, so that a
series is there from the first scrape on, and that what the metadata holds under a label of another
version is shown as `other` instead of becoming a series of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, get_args

from app import VERSION
from app.api.schemas.cache import FailureClass
from app.engine.admission import Admission
from app.engine.faults import DETERMINISTIC
from app.engine.gaps import GAP_TOKENS
from app.engine.histograms import Distribution, Histogram
from app.engine.holds import BROKEN_OFF, IMPORT_US, SENT
from app.engine.metrics import Figures
from app.engine.misses import EVICTED_AGO, MissReason
from app.engine.policy import MODES
from app.engine.slotfile import SlotStatus
from app.engine.stages import SECONDS
from storage.blocks.store import EnvironmentStats

OTHER: Final = "other"
ENVIRONMENTS: Final = ("large", "small")
_US: Final = 1_000_000

Values: TypeAlias = Iterable[tuple[tuple[str, ...], float]]


@dataclass(frozen=True, slots=True)
class Scaled:
    """A distribution in the unit that is shown."""

    bounds: tuple[float, ...]
    distribution: Distribution
    total: float


@dataclass(frozen=True, slots=True)
class Family:
    """One metric.

    `labels` maps each label to all of its values; None where they are said in words (`label_words`).
    A histogram has `distributions` instead of `values`.
    """

    name: str
    kind: str
    says: str
    labels: tuple[tuple[str, tuple[str, ...] | None], ...] = ()
    label_words: str = ""
    values: Callable[[Figures], Values] | None = None
    distributions: Callable[[Figures], Iterable[tuple[str, Scaled]]] | None = None

    @property
    def shown_name(self) -> str:
        """The name that queries use."""
        return f"{self.name}_total" if self.kind == "counter" else self.name

    @property
    def unit(self) -> str:
        """The unit that the name ends with, or nothing."""
        last = self.name.rpartition("_")[2]
        return last if last in ("bytes", "seconds", "tokens") else ""


def _count(name: str, counter: str, says: str) -> Family:
    """A counter without labels."""
    return Family(name, "counter", says, values=lambda f: [((), f.counters.get((counter, ""), 0))])


def _counts(
    name: str, counter: str, label: str, labels: Sequence[str], says: str, *, other: bool = True
) -> Family:
    """A counter for each value of one label."""
    known = frozenset(labels)

    def values(figures: Figures) -> Iterator[tuple[tuple[str, ...], float]]:
        for value in labels:
            yield (value,), figures.counters.get((counter, value), 0)
        if other:
            strange = (
                count
                for (name, value), count in figures.counters.items()
                if name == counter and value not in known
            )
            yield (OTHER,), sum(strange)

    shown = (*labels, OTHER) if other else tuple(labels)
    return Family(name, "counter", says, ((label, shown),), values=values)


def _histogram(name: str, source: Histogram, label: str, scale: int, says: str) -> Family:
    """A histogram for each value of one label."""
    bounds = tuple(bound / scale for bound in source.bounds)

    def distributions(figures: Figures) -> Iterator[tuple[str, Scaled]]:
        for value in source.labels:
            seen = source.read(figures.counters, value)
            yield value, Scaled(bounds, seen, seen.total / scale)

    return Family(name, "histogram", says, ((label, source.labels),), distributions=distributions)


def _gauge(name: str, value: Callable[[Figures], float], says: str) -> Family:
    """A gauge without labels."""
    return Family(name, "gauge", says, values=lambda f: [((), value(f))])


def _sum(name: str, figure: str, says: str) -> Family:
    """A gauge that is added up over the workers."""
    return _gauge(name, lambda f: f.standing.sums[figure], says)


def _environment(name: str, value: Callable[[EnvironmentStats], float], says: str) -> Family:
    """A gauge for each environment of the block store."""
    return Family(
        name,
        "gauge",
        says,
        (("environment", ENVIRONMENTS),),
        values=lambda f: [((env.name,), value(env)) for env in f.environments],
    )


def _requests(figures: Figures) -> Iterator[tuple[tuple[str, ...], float]]:
    for (name, label), count in figures.counters.items():
        if name == "requests":
            method, _, rest = label.partition(" ")
            route, _, status = rest.rpartition(" ")
            yield (method, route, status), count


def _build(figures: Figures) -> Values:
    return [((VERSION, figures.sqlite_version), 1)]


def _modes(figures: Figures) -> Values:
    return [((mode,), float(mode == figures.mode)) for mode in MODES]


_QUARANTINE_CLASSES: Final = (
    "token_digest_mismatch",
    "manifest_mismatch",
    "payload_mismatch",
    "block_missing",
    "block_damaged",
    "recovery",
    "operator",
    *DETERMINISTIC,
)
_OUTCOMES: Final = (
    "restored",
    "unused",
    *(f"failed:{failure_class}" for failure_class in get_args(FailureClass)),
)

FAMILIES: Final = (
    # ---- lookups ----
    _counts(
        "statehold_lookups",
        "lookups",
        "result",
        ("hit", "miss"),
        "Lookups and restores that were answered.",
    ),
    _count("statehold_hit_tokens", "hit_tokens", "Tokens of the states leased or restored."),
    _counts(
        "statehold_misses",
        "misses",
        "reason",
        tuple(reason.value for reason in MissReason),
        "Misses by the reason of the first candidate.",
    ),
    _counts(
        "statehold_misses_evicted",
        "misses_evicted",
        "ago",
        EVICTED_AGO,
        "Misses on a prefix that was evicted, by how long ago: what a larger budget would have held.",
    ),
    _histogram(
        "statehold_lookup_gap_tokens",
        GAP_TOKENS,
        "result",
        1,
        "Tokens of the query beyond the longest state on its path: of a hit what is left to compute, of "
        "a miss (`result` is its reason) what no state covers, usable or not.",
    ),
    _histogram(
        "statehold_stage_seconds",
        SECONDS,
        "stage",
        _US,
        "Time of the stages; see below for what each begins and ends with.",
    ),
    # ---- bytes ----
    _counts(
        "statehold_received_bytes",
        "received_bytes",
        "form",
        ("plain", "blocks"),
        "Component bytes that came in, as they came: plain, or stored values of the block form.",
        other=False,
    ),
    _count(
        "statehold_restored_bytes",
        "restored_bytes",
        "State bytes handed to the connection, in the form that was asked for.",
    ),
    _count("statehold_recorded_bytes", "recorded_bytes", "Raw bytes of states committed."),
    _count("statehold_blocks_written", "blocks_written", "Blocks written."),
    _count(
        "statehold_blocks_deduplicated",
        "blocks_deduplicated",
        "Blocks that were there already and were not written.",
    ),
    _count("statehold_written_raw_bytes", "raw_bytes_written", "Raw bytes of the blocks written."),
    _count(
        "statehold_deduplicated_raw_bytes",
        "raw_bytes_deduplicated",
        "Raw bytes of the blocks that were there already.",
    ),
    _count(
        "statehold_written_stored_bytes",
        "stored_bytes_written",
        "Bytes of the blocks written as stored; the raw ones through these are the compression.",
    ),
    # ---- recording ----
    _counts(
        "statehold_admissions",
        "admissions",
        "answer",
        tuple(verdict.value for verdict in Admission),
        "Answers to the question whether a state may be recorded.",
    ),
    _counts(
        "statehold_records",
        "records",
        "outcome",
        ("committed", "aborted", "expired"),
        "Recordings that ended.",
    ),
    _counts(
        "statehold_geometries",
        "geometry",
        "source",
        ("given", "derived", "not_derived", *(status.value for status in SlotStatus)),
        "Components by where their layout came from.",
    ),
    # ---- leaving ----
    _counts(
        "statehold_evictions",
        "evictions",
        "cause",
        ("budget", "entries", "admin", "age", "purged", "replaced"),
        "States that went, by cause; `age` are those that an operator did not want any more because nobody "
        "had used them for long, `replaced` are those that were leased when a newer recording took "
        "their place, `purged` went out of quarantine.",
    ),
    _counts(
        "statehold_quarantines",
        "quarantines",
        "class",
        _QUARANTINE_CLASSES,
        "States taken out of service; `recovery` are those found at a start after lost commits.",
    ),
    _count(
        "statehold_quarantines_released",
        "quarantine_released",
        "States put back into service after verification.",
    ),
    _counts(
        "statehold_failures_reported",
        "failures_reported",
        "class",
        get_args(FailureClass),
        "Failed imports that clients reported.",
    ),
    # ---- leases ----
    _count(
        "statehold_leases_opened", "leases_opened", "Leases opened, those of responses included."
    ),
    _counts(
        "statehold_leases_released",
        "leases_released",
        "outcome",
        _OUTCOMES,
        "Leases released by their holder; also after the response that opened them.",
    ),
    _counts(
        "statehold_leases_ended",
        "leases_ended",
        "by",
        (SENT, BROKEN_OFF),
        "Leases that ended with the response that opened them.",
    ),
    _count(
        "statehold_leases_expired",
        "leases_expired",
        "Leases that nobody released; counted when they are forgotten, 10 minutes after their end.",
    ),
    _count(
        "statehold_reads_without_lease",
        "reads_without_lease",
        "Responses that no lease could be written for.",
    ),
    _histogram(
        "statehold_import_seconds",
        IMPORT_US,
        "component",
        _US,
        "Time that runtimes took to import a component, as they reported it.",
    ),
    # ---- requests ----
    Family(
        "statehold_http_requests",
        "counter",
        "Requests answered; 499 is a client that went away. What the connection guard refuses is not "
        "in it.",
        (("method", None), ("route", None), ("status", None)),
        "`method`: of the routes, or `other`; `route`: their templates, or `unmatched`; `status`: the code",
        values=_requests,
    ),
    # ---- what is held ----
    _gauge("statehold_live_states", lambda f: f.vitals.usage.entries, "States in service."),
    _gauge(
        "statehold_quarantined_states",
        lambda f: f.vitals.quarantined,
        "States out of service; counted up to 100,000.",
    ),
    _gauge("statehold_recordings", lambda f: f.vitals.usage.recordings, "Recordings under way."),
    _gauge(
        "statehold_reserved_bytes",
        lambda f: f.vitals.usage.reserved_bytes,
        "Raw bytes that recordings under way will bring.",
    ),
    _gauge("statehold_leases_held", lambda f: f.vitals.leases_held, "Leases held."),
    _gauge("statehold_pins", lambda f: f.vitals.pins, "States that are pinned."),
    _gauge(
        "statehold_pinned_bytes",
        lambda f: f.vitals.pinned_bytes,
        "Raw bytes of pinned states, shared blocks counted for each: what the pin budget limits.",
    ),
    _gauge("statehold_namespaces", lambda f: f.vitals.namespaces, "Namespaces."),
    _gauge(
        "statehold_logical_bytes",
        lambda f: f.vitals.logical_bytes,
        "Raw bytes of live states, shared blocks counted for each.",
    ),
    _gauge(
        "statehold_stored_bytes",
        lambda f: f.vitals.usage.stored_bytes,
        "Stored bytes with all overhead: what the budget limits.",
    ),
    _gauge(
        "statehold_new_raw_bytes",
        lambda f: f.vitals.new_raw_bytes,
        "Raw bytes of blocks of components with geometry that were new, since the store was made.",
    ),
    _gauge(
        "statehold_new_row_bytes",
        lambda f: f.vitals.new_row_bytes,
        "Bytes of their rows that were new; the former through these is the write amplification.",
    ),
    # ---- limits ----
    _gauge("statehold_budget_bytes", lambda f: f.settings.budget_bytes, "Limit on stored bytes."),
    _gauge(
        "statehold_pin_budget_bytes",
        lambda f: f.pin_budget_bytes,
        "Limit on the raw bytes of pinned states.",
    ),
    _gauge("statehold_max_states", lambda f: f.settings.max_entries, "Limit on live states."),
    _gauge(
        "statehold_max_reserved_bytes",
        lambda f: f.settings.max_in_flight_bytes,
        "Limit on raw bytes of recordings under way.",
    ),
    _gauge(
        "statehold_max_recordings",
        lambda f: f.settings.max_in_flight_records,
        "Limit on recordings under way.",
    ),
    Family(
        "statehold_mode",
        "gauge",
        "1 for the mode of the store, 0 for the others.",
        (("mode", MODES),),
        values=_modes,
    ),
    # ---- the device ----
    _gauge(
        "statehold_free_disk_bytes",
        lambda f: f.free_disk_bytes,
        "Bytes that may still be written on the device.",
    ),
    _gauge(
        "statehold_free_disk_reserve_bytes",
        lambda f: f.settings.free_disk_reserve_bytes,
        "Recording is refused when less would stay free.",
    ),
    # ---- SQLite ----
    _gauge(
        "statehold_database_bytes",
        lambda f: f.vitals.database_bytes,
        "Size of the SQLite database, its log not counted.",
    ),
    _gauge(
        "statehold_database_free_bytes",
        lambda f: f.vitals.free_page_bytes,
        "Free pages in it, which are used again.",
    ),
    _gauge("statehold_wal_bytes", lambda f: f.wal_bytes, "Size of its write-ahead log."),
    _gauge(
        "statehold_commit_counter",
        lambda f: f.vitals.commit_counter,
        "Number of the last counted commit.",
    ),
    _sum(
        "statehold_database_failed",
        "database_failed",
        "Workers whose SQLite failed to write; they write no more.",
    ),
    # ---- LMDB ----
    _environment(
        "statehold_block_values",
        lambda env: env.values,
        "Values in an LMDB environment (`large`: of 64 KiB and more).",
    ),
    _environment("statehold_block_used_bytes", lambda env: env.used_bytes, "Pages in use in it."),
    _environment(
        "statehold_block_file_bytes",
        lambda env: env.file_bytes,
        "Size of its file; what is not in use is used again.",
    ),
    _environment(
        "statehold_block_map_bytes", lambda env: env.map_bytes, "Largest size that it can grow to."
    ),
    _environment(
        "statehold_block_reader_slots",
        lambda env: env.reader_slots,
        "Reader slots ever in use at once.",
    ),
    _environment(
        "statehold_block_max_reader_slots", lambda env: env.most_reader_slots, "Reader slots."
    ),
    _sum(
        "statehold_block_store_failed",
        "block_store_failed",
        "Workers whose LMDB failed to write or sync; they write no more.",
    ),
    # ---- the processes ----
    _gauge(
        "statehold_workers", lambda f: f.standing.processes, "Processes that have the store open."
    ),
    _gauge("statehold_max_workers", lambda f: f.settings.workers, "Processes that should have."),
    _gauge(
        "statehold_workers_age_seconds",
        lambda f: f.standing.oldest_ms / 1000,
        "Age of the oldest figures of a worker in the sums below.",
    ),
    _sum("statehold_upload_buffer_bytes", "upload_bytes", "Memory taken by uploads."),
    _sum("statehold_max_upload_buffer_bytes", "most_upload_bytes", "Memory that they may take."),
    _sum("statehold_uploads_waiting", "uploads_waiting", "Batches that wait for such memory."),
    _sum("statehold_restore_buffer_bytes", "restore_bytes", "Memory taken by restores."),
    _sum("statehold_max_restore_buffer_bytes", "most_restore_bytes", "Memory that they may take."),
    _sum("statehold_writer_queue_jobs", "writer_jobs", "Jobs that wait for a writer."),
    _sum("statehold_writers_stopped", "writer_stopped", "Workers that record nothing any more."),
    _sum(
        "statehold_lost_commits",
        "lost_commits",
        "Acknowledged commits found lost at the start of the processes that run now.",
    ),
    _sum(
        "statehold_resident_bytes",
        "resident_bytes",
        "Memory in RAM, pages of the block store's files included once for each process.",
    ),
    Family(
        "statehold_build_info",
        "gauge",
        "1; its labels name the versions of the worker that answers.",
        (("version", None), ("sqlite", None)),
        "`version`: of this service; `sqlite`: of the library",
        values=_build,
    ),
)
