"""Footprints, and what fits nowhere."""

from plait.rollout.buffer import RequestBuffer
from plait.rollout.context_scheduler import ContextScheduler
from plait.rollout.scheduler import Scheduler, misfit, placement_tokens
from tests.rollout.scheduled import engine, request


def test_a_footprint_is_prompt_tokens_so_far_and_budget() -> None:
    each = request("1", prompt_tokens=10)
    each.tokens += [1, 2, 3]
    assert placement_tokens(each, 16) == 29


def test_a_misfit_is_told_in_numbers() -> None:
    each = request("1", prompt_tokens=10)
    assert misfit(each, 100, [engine(cache_tokens=50), engine(cache_tokens=100)]) == ""
    assert misfit(each, 101, [engine(cache_tokens=50), engine(cache_tokens=100)]) == (
        "10 context tokens, 0 generated and the next chunk need 101 tokens of cache; the largest engine has 100"
    )


def test_both_are_schedulers() -> None:
    schedulers: list[Scheduler] = [RequestBuffer(chunk_tokens=4), ContextScheduler(chunk_tokens=4)]
    for scheduler in schedulers:
        scheduler.add(request("1"))
        placement = scheduler.place([engine(cache_tokens=4)])
        assert placement is not None
        assert placement.problem.startswith("1 context tokens, 0 generated and the next chunk need 5 tokens")
        assert placement.engine == ""
        assert scheduler.finish("1").request_id == "1"
        assert (scheduler.num_running, scheduler.num_waiting) == (0, 0)


def test_a_full_engine_that_is_being_replaced_still_counts_as_large() -> None:
    scheduler = ContextScheduler(chunk_tokens=4)
    scheduler.add(request("1", prompt_tokens=50))
    assert scheduler.place([engine("small", 20), engine("lost", 100, max_rows=8, num_rows=8)]) is None
    placement = scheduler.place([engine("small", 20), engine("lost", 100)])
    assert placement is not None
    assert (placement.engine, placement.budget_tokens, placement.footprint_tokens) == ("lost", 4, 54)
