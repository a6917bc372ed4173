"""The memory budget: never more out than there is, first come first served, nothing lost to a cancel."""

from __future__ import annotations

import asyncio

from app.engine.memory import MemoryBudget


def test_whoever_asks_for_too_much_waits_until_it_is_free() -> None:
    async def run() -> None:
        budget = MemoryBudget(10)
        await budget.acquire(6)
        waiting = asyncio.create_task(budget.acquire(5))
        await asyncio.sleep(0)
        assert not waiting.done()
        assert budget.try_acquire(1) is False, "nobody overtakes who waits"
        budget.release(6)
        await waiting
        assert budget.used_bytes == 5

    asyncio.run(run())


def test_more_than_everything_is_served_alone() -> None:
    async def run() -> None:
        budget = MemoryBudget(10)
        await asyncio.wait_for(budget.acquire(50), 1)
        assert budget.used_bytes == 50
        budget.release(50)
        assert budget.try_acquire(10)
        assert not budget.try_acquire(1)

    asyncio.run(run())


def test_a_cancelled_wait_neither_keeps_nor_blocks() -> None:
    async def run() -> None:
        budget = MemoryBudget(10)
        await budget.acquire(10)
        first = asyncio.create_task(budget.acquire(8))
        second = asyncio.create_task(budget.acquire(3))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        budget.release(10)
        await asyncio.wait_for(second, 1)
        assert budget.used_bytes == 3

    asyncio.run(run())


def test_a_cancel_at_the_moment_of_its_turn_gives_it_back() -> None:
    async def run() -> None:
        budget = MemoryBudget(10)
        await budget.acquire(10)
        waiting = asyncio.create_task(budget.acquire(4))
        await asyncio.sleep(0)
        budget.release(10)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert budget.used_bytes == 0

    asyncio.run(run())
