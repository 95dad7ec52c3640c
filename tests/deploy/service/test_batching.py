"""The queue of requests: batches, overload, time, failures, the end."""

from __future__ import annotations

import asyncio
import threading

import pytest

from unseen.deploy.service.batching import Batcher
from unseen.deploy.service.problems import Problem


def doubled(items):
    return [(item, 2 * item.content) for item in items], lambda: None


async def gathered(batcher, numbers, seconds=10.0, n=1):
    tasks = [batcher.submit(number, n, seconds) for number in numbers]
    return await asyncio.gather(*tasks, return_exceptions=True)


def opened(compute=doubled, **settings):
    return Batcher(compute, **{"max_batch": 4, "max_wait": 0.0, "max_queue": 8, **settings})


def test_requests_are_gathered_up_to_the_limit():
    sizes = []

    def compute(items):
        sizes.append(len(items))
        return doubled(items)

    batcher = opened(compute, max_wait=5.0)
    assert asyncio.run(gathered(batcher, range(8))) == [0, 2, 4, 6, 8, 10, 12, 14]
    batcher.close()
    assert sizes == [4, 4]


def test_full_queue_refuses_and_late_answers_are_given_up():
    free = threading.Event()

    def compute(items):
        free.wait(20)
        return doubled(items)

    batcher = opened(compute, max_batch=1, max_queue=2)
    results = asyncio.run(gathered(batcher, range(6), seconds=0.3))
    codes = {r.code for r in results if isinstance(r, Problem)}
    assert codes == {"overloaded", "answer_timeout"}
    assert all(r.status == 503 and r.retry for r in results if isinstance(r, Problem))
    free.set()
    batcher.close()


def test_answer_waits_for_the_state_and_says_if_it_cannot_be_saved():
    order = []

    def compute(items):
        def commit():
            order.append("saved")
            if items[0].content == 1:
                raise OSError("no space left")

        return doubled(items)[0], commit

    batcher = opened(compute)

    async def ask():
        assert await batcher.submit(5, 1, 10.0) == 10
        order.append("answered")
        with pytest.raises(Problem, match="no space left") as refused:
            await batcher.submit(1, 1, 10.0)
        assert refused.value.status == 503

    asyncio.run(ask())
    batcher.close()
    assert order == ["saved", "answered", "saved"]


def test_failure_of_a_batch_reaches_its_requests_and_the_next_one_works():
    def compute(items):
        if items[0].content == "bad":
            raise ValueError("cannot")
        return doubled(items)

    batcher = opened(compute)
    (failed,) = asyncio.run(gathered(batcher, ["bad"]))
    assert isinstance(failed, ValueError) and asyncio.run(gathered(batcher, [3])) == [6]
    batcher.close()


def test_close_finishes_what_waits_and_refuses_the_rest():
    batcher = opened(max_wait=0.2, max_batch=64)

    async def ask():
        waiting = asyncio.create_task(gathered(batcher, range(5)))
        await asyncio.sleep(0.05)
        await asyncio.to_thread(batcher.close)
        assert await waiting == [0, 2, 4, 6, 8]
        with pytest.raises(Problem, match="stopping"):
            await batcher.submit(1, 1, 10.0)

    asyncio.run(ask())
