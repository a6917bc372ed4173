"""Whatever is damaged: exact bytes, a clean miss, or a refusal that says how to get on. See `oracle`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.corruption.campaign import Share, campaign

_SHORT = [
    Share("flip", "values", 1, 8),
    Share("flip", "sqlite", 1, 8),
    Share("flip", "lmdb", 1, 8),
    Share("zero", "sqlite", 1, 1),
    Share("zero", "lmdb", 1, 1),
    Share("zero", "values", 1, 4),
    Share("truncate", "", 1, 1),
    Share("swap", "", 1, 1),
    Share("stale", "", 1, 1),
]
_LONG = [
    Share("flip", "values", 110, 40),
    Share("flip", "sqlite", 720, 5),
    Share("flip", "lmdb", 250, 5),
    Share("zero", "sqlite", 80, 1),
    Share("zero", "lmdb", 80, 1),
    Share("zero", "values", 10, 8),
    Share("truncate", "", 200, 1),
    Share("swap", "", 200, 1),
    Share("stale", "", 200, 1),
]


def test_damage_at_random_places_is_never_served(tmp_path: Path) -> None:
    result = campaign(_SHORT, tmp_path / "c", seed=1, processes=1)
    assert result.wrong == []
    assert sum(result.places.values()) == sum(share.folders * share.each for share in _SHORT)
    came = {outcome for _, outcome in result.outcomes}
    assert {"missed", "refused"} <= came  # so some of it was damage indeed


@pytest.mark.soak
def test_damage_at_ten_thousand_places_is_never_served(tmp_path: Path) -> None:
    seed = int(os.environ.get("CORRUPTION_SEED", "20261203"))
    result = campaign(_LONG, tmp_path / "c", seed, os.cpu_count() or 1)
    print(result.table())
    assert result.wrong == []
    assert sum(result.places.values()) >= 10_000
    assert sum(n for (_, store), n in result.places.items() if store == "sqlite") >= 1_000
    assert sum(n for (_, store), n in result.places.items() if store == "lmdb") >= 500
