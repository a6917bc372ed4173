"""The memory budget: never more out than there is, first come first served, nothing lost to a cancel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


async def _settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def _run(body: Callable[[MemoryBudget], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(body(MemoryBudget(10)))


def test_everything_may_be_held_at_once() -> None:
    async def body(budget: MemoryBudget) -> None:
        await asyncio.wait_for(budget.acquire(4), 1)
        await asyncio.wait_for(budget.acquire(6), 1)
        assert budget.used_bytes == 10
        assert not budget.try_acquire(1)
        budget.release(4)
        assert budget.try_acquire(4)
        budget.release(10)
        assert budget.used_bytes == 0

    _run(body)


def test_those_who_wait_are_served_in_the_order_they_came() -> None:
    async def body(budget: MemoryBudget) -> None:
        order: list[int] = []

        async def ask(number: int, size: int) -> None:
            await budget.acquire(size)
            order.append(number)

        await budget.acquire(10)
        sizes = [7, 1, 5, 2, 4]
        tasks = [asyncio.create_task(ask(number, size)) for number, size in enumerate(sizes)]
        await _settled()
        budget.release(10)
        await _settled()
        assert order == [0, 1], "5 does not fit, and 2 does not overtake it"
        assert budget.used_bytes == 8
        budget.release(7)
        await _settled()
        assert order == [0, 1, 2, 3]
        budget.release(1)
        budget.release(5)
        await asyncio.gather(*tasks)
        assert order == [0, 1, 2, 3, 4]
        assert budget.used_bytes == 6

    _run(body)


def test_one_release_wakes_everybody_who_fits() -> None:
    async def body(budget: MemoryBudget) -> None:
        await budget.acquire(10)
        tasks = [asyncio.create_task(budget.acquire(2)) for _ in range(7)]
        await _settled()
        budget.release(10)
        await _settled()
        assert [task.done() for task in tasks] == [True] * 5 + [False] * 2
        assert budget.used_bytes == 10
        budget.release(4)
        await asyncio.gather(*tasks)
        assert budget.used_bytes == 10

    _run(body)


def test_more_than_everything_waits_until_nothing_else_is_out() -> None:
    async def body(budget: MemoryBudget) -> None:
        await budget.acquire(1)
        huge = asyncio.create_task(budget.acquire(50))
        await _settled()
        behind = asyncio.create_task(budget.acquire(1))
        await _settled()
        assert not huge.done()
        assert not behind.done()
        budget.release(1)
        await huge
        assert budget.used_bytes == 50
        assert not behind.done()
        budget.release(50)
        await behind
        assert budget.used_bytes == 1

    _run(body)


def test_nobody_takes_what_those_who_wait_have_been_promised() -> None:
    async def body(budget: MemoryBudget) -> None:
        await budget.acquire(10)
        waiting = asyncio.create_task(budget.acquire(9))
        await _settled()
        budget.release(10)
        assert budget.used_bytes == 9, "promised in the release, before the task has run"
        assert not budget.try_acquire(2)
        assert budget.try_acquire(1)
        await waiting

    _run(body)


def test_who_gives_up_at_the_head_lets_those_behind_go_on() -> None:
    async def body(budget: MemoryBudget) -> None:
        await budget.acquire(6)
        head = asyncio.create_task(budget.acquire(9))
        behind = asyncio.create_task(budget.acquire(4))
        await _settled()
        assert not behind.done()
        head.cancel()
        await asyncio.wait_for(behind, 1)
        assert head.cancelled()
        assert budget.used_bytes == 10

    _run(body)


def test_who_gives_up_in_the_middle_is_forgotten() -> None:
    async def body(budget: MemoryBudget) -> None:
        await budget.acquire(10)
        tasks = [asyncio.create_task(budget.acquire(3)) for _ in range(3)]
        await _settled()
        tasks[1].cancel()
        await _settled()
        assert tasks[1].cancelled()
        budget.release(10)
        await asyncio.gather(tasks[0], tasks[2])
        assert budget.used_bytes == 6

    _run(body)


def test_a_wait_that_ran_out_of_time_keeps_nothing() -> None:
    async def body(budget: MemoryBudget) -> None:
        await budget.acquire(10)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(budget.acquire(1), 0.01)
        budget.release(10)
        assert budget.used_bytes == 0
        assert budget.try_acquire(10)

    _run(body)


@given(
    st.lists(
        st.tuples(st.sampled_from(["ask", "try", "give back", "give up"]), st.integers(1, 14)),
        max_size=60,
    )
)
def test_after_anything_what_is_out_is_what_was_handed_out(steps: list[tuple[str, int]]) -> None:
    async def body(budget: MemoryBudget) -> None:
        out: list[int] = []
        asked: list[tuple[int, asyncio.Task[None]]] = []

        async def settle() -> None:
            await _settled()
            out.extend(size for size, task in asked if task.done() and not task.cancelled())
            asked[:] = [(size, task) for size, task in asked if not task.done()]
            assert budget.used_bytes == sum(out)
            assert sum(out) <= 10 or len(out) == 1
            if asked:
                assert out, "whoever is first is never left waiting for nobody"
                assert sum(out) + asked[0][0] > 10

        for what, number in steps:
            if what == "ask":
                asked.append((number, asyncio.create_task(budget.acquire(number))))
            elif what == "try":
                free = not asked and (not out or sum(out) + number <= 10)
                assert budget.try_acquire(number) is free
                if free:
                    out.append(number)
            elif what == "give back" and out:
                budget.release(out.pop(number % len(out)))
            elif what == "give up" and asked:
                asked[number % len(asked)][1].cancel()
            await settle()
        while out:
            budget.release(out.pop())
            await settle()
        assert not asked
        assert budget.used_bytes == 0

    _run(body)


def test_a_cancel_in_the_same_turn_as_a_release_is_a_cancel_and_nothing_else() -> None:
    async def run() -> None:
        budget = MemoryBudget(10)
        await budget.acquire(10)
        waiting = asyncio.create_task(budget.acquire(4))
        await asyncio.sleep(0)
        waiting.cancel()
        budget.release(10)
        (result,) = await asyncio.gather(waiting, return_exceptions=True)
        assert isinstance(result, asyncio.CancelledError)
        assert budget.used_bytes == 0
        assert budget.try_acquire(10)

    asyncio.run(run())
