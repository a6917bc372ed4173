"""Limits that operators change while the service runs, over those that it was started with.

They are kept in one row of the settings that all workers share, and read where they count, so that a
change is in force from the next request on. What is kept is checked again when it is read: another version
may have written it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Annotated, Any, Final

import structlog
from pydantic import ByteSize, TypeAdapter, ValidationError

from app import sizes
from app.engine.errors import InvalidInput
from app.engine.threads import in_thread
from app.settings import Settings
from storage.rows import Usage
from storage.store import Store

# One line makes a setting one that can be changed at run time, if it is read from `Policy.now`.
CHANGEABLE: Final = (
    "budget_bytes",
    "pin_budget_bytes",
    "max_entries",
    "low_water",
    "min_tokens",
    "free_disk_reserve_bytes",
    "max_in_flight_bytes",
    "max_in_flight_records",
)
KEY: Final = "limits"
_MOST: Final = 1 << 60

Number = int | float

_log = structlog.get_logger("statehold.limits")


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit: what is in force, and what the service was started with."""

    name: str
    value: Number
    configured: Number


class Effective:
    """Settings with what was changed at run time. Thread-safe.

    The last answer is kept with the text that it was made from; another text makes another answer.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._last: tuple[str | None, Settings] = (None, settings)

    def of(self, stored: str | None) -> Settings:
        """The settings in force; `stored` is what is kept under KEY."""
        text, settings = self._last
        if text != stored:
            settings = self._settings.model_copy(update=_read(stored))
            self._last = (stored, settings)
        return settings


class RunTimeLimits:
    """Shows and changes the limits of one store."""

    def __init__(self, store: Store, settings: Settings, small: Executor) -> None:
        self._store = store
        self._settings = settings
        self._small = small

    def show(self) -> list[Limit]:
        """Every limit that can be changed. Fit for the event loop."""
        return self._shown(self._store.catalog.setting(KEY))

    async def warnings(self) -> list[str]:
        """A sentence for each limit that is below what is held."""
        return await in_thread(self._small, self._below)

    def _below(self) -> list[str]:
        now = {limit.name: limit.value for limit in self.show()}
        return below(self._store.catalog.usage(), int(now["budget_bytes"]), int(now["max_entries"]))

    async def change(self, values: Mapping[str, object]) -> list[Limit]:
        """Change limits for all workers, all or none; None goes back to the configured one.

        Raises:
            InvalidInput: one of them is no limit, or has a value that the setting would not take.
        """
        good = {name: checked(name, value) for name, value in values.items()}

        def merged(stored: str | None) -> str | None:
            kept = {**_read(stored), **good}
            left = {name: value for name, value in kept.items() if value is not None}
            return json.dumps(left) if left else None

        return self._shown(
            await in_thread(self._small, self._store.ledger.change_setting, KEY, merged)
        )

    def _shown(self, stored: str | None) -> list[Limit]:
        changed = _read(stored)
        return [
            Limit(name, changed.get(name, configured), configured)
            for name in CHANGEABLE
            for configured in (getattr(self._settings, name),)
        ]


def below(usage: Usage, budget_bytes: int, max_entries: int) -> list[str]:
    """A sentence for each of these limits that is below what is held."""
    found = []
    after = "the next recording evicts down to it (POST /admin/v1/evictions does it beforehand)"
    if usage.stored_bytes > budget_bytes:
        held, budget = sizes.about(usage.stored_bytes), sizes.about(budget_bytes)
        found.append(f"budget_bytes ({budget}) is below what is held ({held}): {after}")
    if usage.entries > max_entries:
        found.append(
            f"max_entries ({max_entries:,}) is below what is held ({usage.entries:,}): {after}"
        )
    return found


def checked(name: str, value: object) -> Number | None:
    """A new value of a limit, by the rules of its setting; None stays None.

    Raises:
        InvalidInput: there is no such limit, or it does not take this value.
    """
    check = _CHECKS.get(name)
    if check is None:
        raise InvalidInput("invalid_request", "there is no such limit", name[:64])
    if value is None:
        return None
    try:
        return check(value)
    except ValidationError as error:
        said = error.errors(include_url=False, include_context=False, include_input=False)[0]["msg"]
        raise InvalidInput("invalid_request", f"{name}: {said}", name) from None
    except ValueError as error:
        raise InvalidInput("invalid_request", f"{name}: {error}", name) from None


def _read(stored: str | None) -> dict[str, Number]:
    """What is kept, less what this version does not take."""
    if stored is None:
        return {}
    try:
        kept = dict(json.loads(stored))
    except (ValueError, TypeError):
        _log.warning("stored_limits_unreadable")
        return {}
    found: dict[str, Number] = {}
    for name, value in kept.items():
        try:
            good = checked(name, value)
        except InvalidInput as error:
            _log.warning("stored_limit_not_taken", error=error.detail)
        else:
            if good is not None:
                found[name] = good
    return found


def _check_of(name: str) -> Callable[[object], Number]:
    field = Settings.model_fields[name]
    is_size = field.annotation is ByteSize
    adapter: TypeAdapter[Any] = TypeAdapter(Annotated[field.annotation, *field.metadata])  # type: ignore[arg-type]

    def check(value: object) -> Number:
        # The type of sizes takes true and 1.5 for 1, whether strict or not (pydantic 2.14).
        if is_size and type(value) not in (int, str):
            raise ValueError("a size is a whole number of bytes, or a text as in 64GiB")
        if is_size and isinstance(value, str):
            try:
                value = sizes.parse(value)
            except ValueError:  # what was sent is not said again
                raise ValueError("it is no size: write bytes, or a text as in 64GiB") from None
        number: Number = adapter.validate_python(value, strict=True)
        if number > _MOST:
            raise ValueError(f"at most {_MOST}")
        return number

    return check


_CHECKS: Final = {name: _check_of(name) for name in CHANGEABLE}
