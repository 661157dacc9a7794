from collections.abc import Sequence
from typing import Any

import pytest

from benchmarks.hrrs import FIRST_SEED, SYSTEMS, decisions_per_s, rows_of
from benchmarks.hrrs_headlines import FIFO, HRRS, PLAIN, SHORTEST, headlines_of
from benchmarks.hrrs_loads import CHAINED, FULL, KINDS, PIPELINED, QUICK, SINGLE, Load
from benchmarks.hrrs_overtaking import WatchedHrrs
from benchmarks.hrrs_run import Run
from plait.scheduling.function_call import FunctionCall
from plait.scheduling.hrrs import Hrrs
from plait.scheduling.orders import Fifo


@pytest.mark.parametrize("kind", KINDS)
def test_a_load_is_the_same_each_time_and_keeps_its_share(kind: str) -> None:
    load = Load(kind, 3, 2, 0.0, 0.7)
    jobs = load.jobs(1, 500)
    assert jobs == load.jobs(1, 500) != load.jobs(2, 500)
    assert len({job.deployment for job in jobs}) == 3
    shares = []
    for job in jobs:
        gaps_s = sum(batch.after_s for batch in job.batches)
        shares.append(job.service_s / (gaps_s + (job.service_s if load.is_closed else 0.0)))
    assert sum(shares) == pytest.approx(0.7, rel=0.15)


@pytest.mark.parametrize("kind", KINDS)
def test_every_order_serves_all_of_it_and_the_bounds_hold(kind: str) -> None:
    load = Load(kind, 2, 2, 1.5, 0.8)
    rows = rows_of(load, num_seeds=1, num_steps=20)
    num_calls = sum(len(batch.asks) for job in load.jobs(FIRST_SEED, 20) for batch in job.batches)
    assert [(row["system"], row["calls"]) for row in rows] == [(system, num_calls) for system in SYSTEMS]
    assert {row["system"]: row["broken_bounds"] for row in rows if row["broken_bounds"] is not None} == {HRRS: 0, PLAIN: 0}
    assert all(row["mean_slowdown"] >= 1 and row["mean_job_slowdown"] >= 1 for row in rows)


def test_alone_nothing_waits() -> None:
    for kind in (SINGLE, CHAINED):
        load = Load(kind, 1, 1, 0.0, 0.5)
        outcome = Run(load, load.jobs(0, 20), Fifo()).run()
        assert outcome.slowdowns == pytest.approx([1.0] * len(outcome.slowdowns))
        assert outcome.job_slowdowns == pytest.approx([1.0])


def test_what_is_asked_at_once_waits_for_itself_but_the_job_does_not() -> None:
    load = Load(PIPELINED, 1, 1, 0.0, 0.5)
    outcome = Run(load, load.jobs(0, 20), Fifo()).run()
    assert max(outcome.slowdowns) > 5
    assert outcome.job_slowdowns == pytest.approx([1.0])


class LastFirst(Hrrs):
    """Not what the bounds are about."""

    def pick(self, heads: Sequence[FunctionCall], *rest: Any) -> FunctionCall:
        return max(heads, key=lambda call: call.arrival_s)


class WatchedLastFirst(WatchedHrrs, LastFirst):
    pass


def test_an_order_that_breaks_the_bounds_is_found_out() -> None:
    load = Load(CHAINED, 3, 2, 0.1, 0.9)
    order = WatchedLastFirst(0.0)
    Run(load, load.jobs(0, 20), order).run()
    assert order.num_broken > 10


def test_headlines_are_ratios_within_each_load() -> None:
    def row(load: str, system: str, mean: float, switches: int, largest: float) -> dict[str, object]:
        figures = {"mean_slowdown": mean, "switches": switches, "max_slowdown": largest}
        of_jobs = {"mean_job_slowdown": mean, "max_job_slowdown": largest}
        return {"load": load, "kind": SINGLE, "system": system, "calls": 5, "broken_bounds": None} | figures | of_jobs

    rows = [
        row("a", HRRS, 2.0, 8, 9.0), row("a", PLAIN, 4.0, 8, 9.0), row("a", FIFO, 8.0, 10, 30.0), row("a", SHORTEST, 2.0, 9, 9.0),
        row("b", HRRS, 4.0, 8, 8.0), row("b", PLAIN, 4.0, 8, 8.0), row("b", FIFO, 4.0, 8, 20.0), row("b", SHORTEST, 3.0, 9, 2.0),
    ]  # fmt: skip
    headlines = headlines_of(rows, 2e5)
    assert headlines["mean_slowdown"]["value"] == pytest.approx(0.5)
    assert headlines["mean_slowdown"]["met"]
    assert "1 of them reach it" in headlines["mean_slowdown"]["note"]
    assert "worst 1.00 (b); not looking ahead 0.71" in headlines["mean_slowdown"]["note"]
    assert headlines["mean_slowdown_of_closed_loads"]["value"] == pytest.approx(0.5)
    assert headlines["max_slowdown"]["value"] == pytest.approx(2.0)
    assert not headlines["max_slowdown"]["met"]
    assert headlines["decisions_per_s"]["met"]


def test_speed_is_measured() -> None:
    assert decisions_per_s(1, 2) > 0


def test_loads_have_names_of_their_own() -> None:
    assert len({load.name for load in FULL}) == len(FULL) > len(QUICK) > 0
