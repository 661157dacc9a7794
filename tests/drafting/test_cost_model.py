"""The plan against every possible plan, and its promises."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.drafting.cost_model import DraftLimits, RowDraft, best_plan
from plait.drafting.target_time import TargetTime

CHANCES = st.lists(st.floats(0.05, 1.0), max_size=3).map(lambda found: tuple(sorted(found, reverse=True)))
ROWS = st.lists(st.builds(RowDraft, CHANCES, st.booleans()), min_size=1, max_size=4)
TIMES = st.lists(st.floats(0.01, 0.1), min_size=9, max_size=9).map(
    lambda seconds: TargetTime(dict(zip(product((1, 2, 4), (1, 2, 4)), seconds, strict=True)))
)


def cost(rows: list[RowDraft], counts: tuple[int, ...], times: TargetTime, draft_s: float) -> float:
    expected = len(rows) + sum(sum(row.acceptances[:num]) for row, num in zip(rows, counts, strict=True))
    return (times.seconds(len(rows), len(rows) + sum(counts)) + (draft_s if any(counts) else 0)) / expected


@given(ROWS, TIMES, st.floats(0, 0.01))
@settings(max_examples=150, deadline=None)
def test_no_other_plan_is_cheaper(rows: list[RowDraft], times: TargetTime, draft_s: float) -> None:
    plan = best_plan(rows, times, draft_s, DraftLimits(margin=0.0, tail_weight=1.0))
    others = product(*(range(len(row.acceptances) + 1) for row in rows))
    least = min(cost(rows, counts, times, draft_s) for counts in others)
    assert cost(rows, plan.draft_tokens, times, draft_s) == pytest.approx(least)
    assert plan.seconds / plan.expected_tokens == pytest.approx(least)


@given(ROWS, TIMES, st.floats(0, 0.01), st.floats(0, 0.3), st.floats(1, 4), st.integers(0, 6), st.integers(0, 3), st.floats(0, 0.1))
@settings(max_examples=150, deadline=None)
def test_never_worse_than_no_drafts_and_within_all_budgets(
    rows: list[RowDraft], times: TargetTime, draft_s: float, margin: float, weight: float, most: int, gamma: int, extra_s: float
) -> None:
    plan = best_plan(rows, times, draft_s, DraftLimits(gamma, most, extra_s, margin, weight))
    none = (0,) * len(rows)
    if plan.num_draft_tokens:
        assert cost(rows, plan.draft_tokens, times, draft_s) <= (1 - margin) * cost(rows, none, times, draft_s) + 1e-12
    assert plan.num_draft_tokens <= most
    assert all(num <= min(gamma, len(row.acceptances)) for row, num in zip(rows, plan.draft_tokens, strict=True))
    assert times.seconds(len(rows), len(rows) + plan.num_draft_tokens) - times.seconds(len(rows), len(rows)) <= extra_s


def test_the_tail_comes_first_where_the_budget_is_short() -> None:
    times = TargetTime({(rows, width): 0.1 for rows in (1, 4) for width in (1, 9)})
    rows = [RowDraft((0.8, 0.7)), RowDraft((0.6, 0.5), is_tail=True)]
    assert best_plan(rows, times, limits=DraftLimits(max_draft_tokens=1, tail_weight=1.0)).draft_tokens == (1, 0)
    assert best_plan(rows, times, limits=DraftLimits(max_draft_tokens=1, tail_weight=1.5)).draft_tokens == (0, 1)


def test_free_tokens_are_all_taken_and_dear_ones_are_not() -> None:
    rows = [RowDraft((0.9, 0.8)), RowDraft()]
    free = TargetTime({(2, 1): 0.1, (2, 9): 0.1})
    dear = TargetTime({(2, 1): 0.1, (2, 9): 0.9})
    assert best_plan(rows, free).draft_tokens == (2, 0)
    assert best_plan(rows, dear).draft_tokens == (0, 0)
    assert best_plan([], free).draft_tokens == ()
