"""Totals of engines across restarts, and what is derived from them."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from plait.observe.engine_counters import acceptance, draft_length, grown, hit_share

lives = st.lists(st.lists(st.integers(1, 100), min_size=1, max_size=5), min_size=1, max_size=5)
"""What a counter grows by from report to report, in each life of its process."""


@given(lives)
def test_totals_go_on_over_restarts(lives: list[list[int]]) -> None:
    """Each life reports 0 first, as an engine does that has only just begun."""
    totals: dict[str, float] = {}
    before: dict[str, float] = {}
    for life in lives:
        for count in itertools.accumulate(life, initial=0):
            latest = {"n": float(count)}
            totals, before = grown(before, latest, totals), latest
    assert totals["n"] == sum(sum(life) for life in lives)


def test_a_counter_that_comes_later_counts_from_zero() -> None:
    assert grown({"a": 1.0}, {"a": 3.0, "b": 5.0}, {"a": 1.0}) == {"a": 3.0, "b": 5.0}


def test_of_a_level_the_latest_holds() -> None:
    assert grown({"host_used_bytes": 9.0}, {"host_used_bytes": 4.0}, {"host_used_bytes": 9.0}) == {"host_used_bytes": 4.0}


def test_shares_are_absent_until_there_is_something_to_share() -> None:
    assert (hit_share({}), acceptance({}), draft_length({})) == (None, None, None)
    counts = {"computed_prompt_tokens": 50.0, "device_hit_tokens": 30.0, "disk_hit_tokens": 20.0}
    assert (hit_share(counts), hit_share(counts, ["disk"]), hit_share(counts, ["host"])) == (0.5, 0.2, 0.0)
    assert acceptance({"drafted_tokens": 8.0, "accepted_tokens": 6.0}) == 0.75
    assert draft_length({"drafted_tokens": 8.0, "drafts": 2.0}) == 4.0
