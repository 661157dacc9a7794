"""The plan against every possible plan, and its promises."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.drafting.cost_model import DraftLimits, RowDraft, best_plan
from plait.drafting.target_time import PATHS_WIDTH, SEVERAL_PATHS, TargetTime

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


@st.composite
def trees(draw: st.DrawFn) -> tuple[RowDraft, tuple[int, ...]]:
    """A row's tree of up to five nodes, with the parent of each."""
    num_first = draw(st.integers(1, 3))
    parents = [*range(-1, num_first - 1)]
    for node in range(num_first, draw(st.integers(num_first, 5))):
        free = [parent for parent in range(-1, node) if parent != num_first - 1 or node > num_first]
        parents.append(draw(st.sampled_from(free)))
    chances: list[float] = []
    for parent in parents:
        chances.append(draw(st.floats(0.05, 1.0)) * (chances[parent] if parent >= 0 else 1.0))
    return RowDraft(tuple(chances), draw(st.booleans()), num_first), tuple(parents)


@given(st.lists(trees(), min_size=1, max_size=2), TIMES, st.floats(1.0, 2.0), st.floats(0, 0.01))
@settings(max_examples=150, deadline=None)
def test_no_other_part_of_the_trees_is_cheaper(
    rows: list[tuple[RowDraft, tuple[int, ...]]], times: TargetTime, factor: float, draft_s: float
) -> None:
    """Against all ways to choose nodes, each with the node before it; what is beside a first path costs the factor."""
    times._paths = [factor]
    plan = best_plan([row for row, _ in rows], times, draft_s, DraftLimits(margin=0.0, tail_weight=1.0))

    def cost_of(chosen: tuple[tuple[int, ...], ...]) -> float:
        expected = len(rows) + sum(row.acceptances[n] for (row, _), nodes in zip(rows, chosen, strict=True) for n in nodes)
        seconds = times.curve(len(rows), sum(map(len, chosen)))[-1]
        has_paths = any(n >= (row.num_first or 0) for (row, _), nodes in zip(rows, chosen, strict=True) for n in nodes)
        return (seconds * (factor if has_paths else 1.0) + (draft_s if any(chosen) else 0)) / expected

    def parts(parents: tuple[int, ...]) -> list[tuple[int, ...]]:
        subsets = [tuple(n for n in range(len(parents)) if mask >> n & 1) for mask in range(1 << len(parents))]
        return [nodes for nodes in subsets if all(parents[n] in (-1, *nodes) for n in nodes)]

    for (_, parents), nodes in zip(rows, plan.nodes, strict=True):
        assert nodes in parts(parents)
    assert cost_of(plan.nodes) == pytest.approx(min(map(cost_of, product(*(parts(parents) for _, parents in rows)))))


def test_paths_pay_only_while_they_are_cheap() -> None:
    row = RowDraft((0.5, 0.3, 0.45), True, num_first=2)
    profile = {(rows, width): 0.1 + 0.001 * width for rows in (1, 4) for width in (1, PATHS_WIDTH, 9)}
    cheap = TargetTime(profile | {(1, SEVERAL_PATHS): 0.106})
    assert best_plan([row], cheap).nodes == ((0, 1, 2),)
    assert best_plan([row], cheap).has_paths
    dear = TargetTime(profile | {(1, SEVERAL_PATHS): 0.150})
    assert best_plan([row], dear).nodes == ((0, 1),)
    assert not best_plan([row], dear).has_paths
    for _ in range(60):
        cheap.observe(1, 4, 0.150, has_paths=True)
    assert cheap.paths_factor(1) == pytest.approx(0.150 / 0.104, rel=0.05)
    assert cheap.seconds(1, 4) == pytest.approx(0.104)
    assert best_plan([row], cheap).nodes == ((0, 1),)
    assert best_plan([row], cheap, limits=DraftLimits(max_nodes=1)).nodes == ((0,),)


def test_the_tail_comes_first_where_the_budget_is_short() -> None:
    times = TargetTime({(rows, width): 0.1 for rows in (1, 4) for width in (1, 9)})
    rows = [RowDraft((0.8, 0.7)), RowDraft((0.6, 0.5), is_tail=True)]
    assert best_plan(rows, times, limits=DraftLimits(max_draft_tokens=1, tail_weight=1.0)).draft_tokens == (1, 0)
    assert best_plan(rows, times, limits=DraftLimits(max_draft_tokens=1, tail_weight=1.5)).draft_tokens == (0, 1)


@given(ROWS, TIMES, st.lists(st.floats(0, 2), min_size=4, max_size=4))
@settings(max_examples=60, deadline=None)
def test_a_token_worth_half_counts_as_one_accepted_half_as_often(
    rows: list[RowDraft], times: TargetTime, worths: list[float]
) -> None:
    found = best_plan([replace(row, worth=worth) for row, worth in zip(rows, worths, strict=False)], times)
    scaled = [
        replace(row, acceptances=tuple(chance * worth for chance in row.acceptances))
        for row, worth in zip(rows, worths, strict=False)
    ]
    assert found == best_plan(scaled, times)
    assert all(num == 0 or worth > 0 for num, worth in zip(found.draft_tokens, worths, strict=False))


def test_free_tokens_are_all_taken_and_dear_ones_are_not() -> None:
    rows = [RowDraft((0.9, 0.8)), RowDraft()]
    free = TargetTime({(2, 1): 0.1, (2, 9): 0.1})
    dear = TargetTime({(2, 1): 0.1, (2, 9): 0.9})
    assert best_plan(rows, free).draft_tokens == (2, 0)
    assert best_plan(rows, dear).draft_tokens == (0, 0)
    assert best_plan([], free).draft_tokens == ()
