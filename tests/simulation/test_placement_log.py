"""What the service's own placement was told and decided: the simulator's placer decides the same on it."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.cluster.groups.group_placement import GroupPlacement
from plait.placement.drift import DriftSettings
from plait.placement.job import Role
from plait.placement.job_profile import JobProfile, Phase
from plait.placement.placer import Placer
from plait.simulation.cluster import POLICIES
from tests.simulation.test_decisions import EVENTS

IMPATIENT = DriftSettings(confirmations=2, cooldown_s=5.0)
Log = list[tuple[str, dict[str, JobProfile], tuple[Any, ...], Any]]
"""(event, profiles known before it, arguments, decisions)."""
TOLD = st.tuples(st.sampled_from("abcde"), st.integers(5, 20), st.integers(1, 99), st.booleans())
"""Each time a job: its period and busy share as told then, and whether it leaves instead, if it is there."""


def recorded(placer: Placer) -> Log:
    log: Log = []

    def wrap(name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            profiles = dict(placer.profiles)
            log.append((name, profiles, arguments, decided := act(*arguments)))
            return decided

        return call

    for name in EVENTS:
        setattr(placer, name, wrap(name, getattr(placer, name)))
    return log


@pytest.mark.parametrize("policy", sorted(POLICIES))
@settings(deadline=None, max_examples=8)
@given(history=st.lists(TOLD, min_size=8, max_size=24))
def test_on_the_log_of_the_service_s_placement_a_simulator_s_placer_decides_the_same(policy: str, history: list[Any]) -> None:
    placement = GroupPlacement(["g0", "g1", "g2"], 100, None, policy.replace("+", "_"), IMPATIENT)
    nodes, log = placement.placer.groups.view.nodes(), recorded(placement.placer)
    for number, (job, period_s, busy, leaves) in enumerate(history):
        now_s = 10.0 * number
        if job not in placement.jobs:
            placement.arrive(job, 10, 1.0 + busy / 50)
        elif leaves:
            placement.leave(job, now_s)
            placement.settle()
            continue
        told = JobProfile(float(period_s), (Phase(Role.ROLLOUT, 0.0, period_s * busy / 100),))
        placement.profiled(job, told, now_s, num_bytes=10, switch_s=0.1, now_s=now_s)
        placement.settle()
    placer = POLICIES[policy](nodes, IMPATIENT)
    for name, profiles, arguments, decided in log:
        placer.profiles = profiles
        assert getattr(placer, name)(*arguments) == decided
    assert len(log) >= len({job for job, *_ in history})
