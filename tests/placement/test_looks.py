"""Traces that are looked at only once a decision may come of them: the same decisions as if each were looked at when it is told."""

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.placement.extraction import Extraction
from plait.placement.job_profile import JobProfile
from plait.placement.policies import Pack
from plait.types.errors import StateError
from tests.placement.test_placer import job, nodes, profile, warm

shapes = st.builds(profile, st.sampled_from([100.0, 140.0, 150.0]), st.sampled_from([0.15, 0.25, 0.9]))
settled = st.builds(lambda told, count: [told] * count, st.one_of(st.none(), shapes), st.integers(1, 4))
traces = st.lists(settled, min_size=1, max_size=5).map(lambda runs: [told for run in runs for told in run])


def placer_of(is_warm: bool) -> Pack:
    placer = warm(Pack, 4) if is_warm else Pack(nodes(4))
    for name in ("a", "b", "c"):
        placer.submit(job(name), 0)
    return placer


@settings(max_examples=20, deadline=None)
@given(traces, st.booleans(), st.integers(0, 8), st.sampled_from([100.0, 1000.0]))
def test_what_is_looked_at_late_is_decided_upon_alike(
    found: list[JobProfile | None], is_warm: bool, end: int, every_s: float
) -> None:
    """c, which shares with the others, ends in between."""
    early, late = placer_of(is_warm), placer_of(is_warm)
    for step, told in enumerate(found):
        now_s = every_s * (step + 1)
        if "a" not in early.groups.jobs:
            break
        at_once = [] if told is None else early.profile_updated("a", told, now_s, 1.0)
        assert late.traced("a", partial(Extraction, told, anchor_s=1.0), now_s) == at_once
        if step == end:
            assert late.job_ended("c", now_s) == early.job_ended("c", now_s)
        assert late.profiles == early.profiles


def test_nobody_looks_at_what_could_not_confirm_a_drift() -> None:
    placer, seen = placer_of(True), []

    def look(number: int) -> Extraction:
        seen.append(number)
        return Extraction(profile(150.0) if number else None)

    for number in range(3):
        assert not seen
        placer.traced("b", partial(look, number), 1000.0 * number)
    assert seen == [0, 1, 2]
    placer.traced("b", partial(look, 3), 4000.0)
    assert seen == [0, 1, 2, 3], "with the two before it, it could"


def test_a_job_that_does_not_share_yet_is_looked_at_once_it_is_told() -> None:
    placer = placer_of(False)
    placer.traced("a", partial(Extraction, profile()), 100.0)
    assert placer.groups.jobs["a"].is_shared
    with pytest.raises(StateError, match="not placed"):
        placer.traced("x", partial(Extraction, None), 0.0)
