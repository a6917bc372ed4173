"""Limits of the whole store."""

from __future__ import annotations

from typing import Any, Final

from pydantic import ConfigDict, Field, RootModel, model_validator

from app.api.schemas.common import Model
from app.engine.limits import CHANGEABLE
from app.settings import Settings

_OF_NUMBERS: Final = ("type", "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")


class LimitInfo(Model):
    """A limit. Sizes are bytes."""

    value: int | float = Field(description="In force.", examples=[34359738368])
    configured: int | float = Field(
        description="What the service was started with.", examples=[68719476736]
    )
    unit: str = Field(examples=["bytes"])


class LimitsInForce(Model):
    """Every limit that can be changed at run time, by name."""

    limits: dict[str, LimitInfo]
    warnings: list[str] = Field(
        description="A sentence for each limit that is below what is held.", examples=[[]]
    )


def _by_name(schema: dict[str, Any]) -> None:
    """Document each limit by itself, as its setting is."""
    settings = Settings.model_json_schema()["properties"]
    schema["properties"] = {name: _taken(name, settings[name]) for name in CHANGEABLE}
    schema["additionalProperties"] = False
    schema["minProperties"] = 1
    schema["examples"] = [{"budget_bytes": "32GiB", "low_water": 0.9}]


def _taken(name: str, setting: dict[str, Any]) -> dict[str, Any]:
    number = {key: value for key, value in setting.items() if key in _OF_NUMBERS}
    number.setdefault("type", "integer")  # pydantic says nothing of a size (2.14)
    as_text = [{"type": "string"}] if name.endswith("_bytes") else []
    return {
        "anyOf": [number, *as_text, {"type": "null"}],
        "description": setting["description"],
    }


class LimitsChange(RootModel[dict[str, int | float | str | None]]):
    """New values by name, by the rules of the settings; sizes also as "64GiB". Null: as configured."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, json_schema_extra=_by_name)

    @model_validator(mode="after")
    def _something(self) -> LimitsChange:
        if not self.root:
            raise ValueError("name at least one limit")
        return self
