"""Counters over time."""

from __future__ import annotations

from pydantic import Field

from app.api.schemas.common import Model


class Series(Model):
    """What one counter grew by in each step, all workers together."""

    name: str = Field(examples=["misses"])
    label: str = Field(description="Empty for a counter without one.", examples=["never_seen"])
    values: list[int] = Field(
        description="Oldest first; 0 where nothing happened or no server ran.",
        examples=[[0, 3, 1]],
    )


class HistoryResponse(Model):
    """Series of one time axis: step i begins at `from_ms` + i * `step_ms`."""

    from_ms: int = Field(
        description="Beginning of the first step, ms since the Unix epoch; a whole multiple of "
        "`step_ms`, so a step holds the same minutes in every answer.",
        examples=[1_796_169_600_000],
    )
    step_ms: int = Field(examples=[60_000])
    steps: int = Field(
        description="Values in each series; the last step is not over yet.", examples=[3]
    )
    series: list[Series] = Field(
        description="In order of name and label; only counters that grew in that time."
    )
