"""The jobs, the loop and the claims of the benchmark of placement."""

import pytest

from benchmarks.placement import PAPER, headlines_of
from benchmarks.placement_jobs import arrivals, nodes_of, train_idle
from benchmarks.placement_loop import Loop
from plait.placement.policies import Isolated, SpreadBackfill


def test_the_stream_is_of_its_seed_and_as_idle_as_in_the_paper() -> None:
    stream = arrivals(300, 60, 1, 2048, 0.5)
    assert stream == arrivals(300, 60, 1, 2048, 0.5)
    assert stream != arrivals(300, 60, 2, 2048, 0.5)
    assert train_idle(stream) == pytest.approx({"7B": 0.80, "30B": 0.71, "235B": 0.81}, abs=0.02)


def test_alone_jobs_run_at_their_own_speed_and_sharing_takes_fewer_device_hours() -> None:
    stream = arrivals(20, 60, 1, 128, 1.0)
    isolated, shared = (Loop(policy(nodes_of(128)), stream).run() for policy in (Isolated, SpreadBackfill))
    assert max(isolated.slowdowns.values()) == pytest.approx(1.0)
    assert len(isolated.slowdowns) == len(shared.slowdowns) == 20
    assert shared.device_hours < isolated.device_hours
    assert shared.makespan_s < isolated.makespan_s
    assert max(shared.slowdowns.values()) <= 1.2


def test_claims_are_savings_and_the_slowest_decision() -> None:
    rows = [
        {
            "stream": "asynchronous",
            "policy": policy,
            "makespan_s_relative": 60.0,
            "max_slowdown": 1.1,
            "over_slo": 0,
            "slowest_decision_s": 0.1,
        }
        for policy in PAPER
    ]
    timed = {"devices": 64, "decisions_per_s": 100.0, "slowest_decision_s": 0.5}
    claims = headlines_of([*rows, timed])
    assert claims["makespan_saved_spread"]["met"]
    assert not claims["makespan_saved_spread+backfill"]["met"]
    assert claims["slowest_decision_per_s"]["value"] == 2.0
    assert claims["slo_kept"]["met"]
