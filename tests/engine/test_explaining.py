"""The queue of explanations is bounded; what an HTTP client sees of them is in tests/http."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.engine.errors import Unavailable
from app.engine.explaining import Explainer
from app.engine.lookup import Candidate
from app.engine.policy import Policy
from app.settings import Settings


def test_too_many_explanations_are_refused_at_once_and_the_others_end() -> None:
    go = threading.Event()

    def history(*_: Any) -> list[Any]:
        assert go.wait(30)
        return []

    catalog = SimpleNamespace(history=history, around=lambda *_: None, setting=lambda _: None)
    store = cast(Any, SimpleNamespace(catalog=catalog))
    explainer = Explainer(store, Policy(Settings(), lambda: None), cast(Any, None))

    async def ask() -> list[Any]:
        async def one() -> Any:
            return await explainer.explain(
                Candidate("ns", b"\0\0\0\0"), ["kv"], truncate=False, whole_store=True
            )

        waiting = [asyncio.create_task(one()) for _ in range(8)]
        await asyncio.sleep(0)
        with pytest.raises(Unavailable) as refused:
            await one()
        assert (refused.value.code, refused.value.retry_after_s) == ("busy", 1)
        go.set()
        ended = await asyncio.gather(*waiting)
        await one()  # and there is room again
        return ended

    assert [found.known for found in asyncio.run(ask())] == [False] * 8
    explainer.close()
