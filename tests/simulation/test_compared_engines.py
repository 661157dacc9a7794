"""Engines that draft, and engines that preempt, by hand."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.drafting.draft_tree import DraftTree
from plait.drafting.planner import DraftPlanner
from plait.simulation.drafting_engine import DraftingEngine
from plait.simulation.drafts import PROFILED_ROWS, PROFILED_WIDTHS, SEER_ACCEPTANCE, AcceptanceTable, DraftModel
from plait.simulation.preempting_engine import PreemptingEngine
from tests.simulation.even_costs import EvenCosts
from tests.simulation.test_engine import Ends, chunk


class Light(EvenCosts):
    """A step takes a second, and so much for each token that is fed."""

    token_s = 0.001

    def verify_step_s(self, num_rows: int, context_tokens: int, tokens_per_row: float) -> float:
        return 1 + self.token_s * num_rows * tokens_per_row


class Fixed:
    """Two draft tokens a row, of which one and a half are accepted."""

    def plan(self, num_siblings: Sequence[int], context_tokens: int) -> list[tuple[int, float]]:
        return [(2, 2.5)] * len(num_siblings)

    def step_s(self, num_rows: int, context_tokens: int, num_draft_tokens: int) -> float:
        return 1 + 0.1 * num_draft_tokens + 0.001 * context_tokens


def ran(make: Any, *rows: tuple[str, int, int], **options: Any) -> tuple[Ends, Any]:
    """`rows`: name, tokens that it draws, context; all come at once."""
    env, ends, left = simpy.Environment(), Ends(), {name: num_tokens for name, num_tokens, _ in rows}
    engine = make(
        env, "e", EvenCosts(), lambda c: left[c.request_id], lambda _, c: (len(c.context_tokens), 0.0),
        lambda _, c, drawn, is_last: ends.update({c.request_id: (env.now, drawn, is_last)}), None, **options,
    )  # fmt: skip
    engine.submit([chunk(name, context) for name, _, context in rows])
    env.run()
    assert (engine.num_rows, engine.context_tokens) == (0, 0)
    return ends, engine


def test_rows_with_drafts_advance_by_what_a_step_brings_and_cost_what_it_feeds() -> None:
    """Ten steps of two and a half tokens, the first with 100 tokens of context, the last with 122."""
    ends, engine = ran(DraftingEngine, ("a", 25, 100), drafts=Fixed(), siblings_of=lambda group: 0)
    first_s, last_s = 1 + 0.2 + 0.1, 1 + 0.2 + 0.122
    assert ends == {"a": (pytest.approx(0.1 * 100 + 10 * (first_s + last_s) / 2), 25, True)}
    assert (engine.num_steps, engine.num_decoded_tokens) == (10, 25)


def test_a_step_with_drafts_takes_verifying_them_and_drafting_for_each_row() -> None:
    model = DraftModel(EvenCosts(), draft_s_per_row=0.003)
    assert model.step_s(4, 100, 0) == pytest.approx(1 + 0.04 + 0.1)
    assert model.step_s(4, 100, 6) == pytest.approx(1 + 0.04 + 0.1 + 0.05 * 6 / 4 + 4 * 0.003)


def test_each_row_drafts_by_its_own_siblings() -> None:
    siblings = [15, 0, 15, 7]
    found = DraftModel(Light()).plan(siblings, 100)
    assert all(num for num, _ in found)
    for num_siblings, (num, rate) in zip(siblings, found, strict=True):
        chance = SEER_ACCEPTANCE.chance(num_siblings)
        assert rate == pytest.approx(1 + sum(chance**k for k in range(1, num + 1)))


@settings(max_examples=15)
@given(st.lists(st.integers(0, 15), min_size=1, max_size=12), st.sampled_from([0.0005, 0.005, 0.05]))
def test_drafts_are_as_long_as_the_service_s_planner_makes_them(siblings: list[int], token_s: float) -> None:
    """Of a planner that has measured nothing yet, and may spend what it likes, for drafts of the same chances."""
    costs = Light()
    costs.token_s = token_s
    planner = DraftPlanner(
        {(rows, width): costs.verify_step_s(rows, 0, width) for rows in PROFILED_ROWS for width in PROFILED_WIDTHS}
    )
    planner.ledger = SimpleNamespace(balance_s=float("inf"))  # type: ignore[assignment]
    planner.drafting = SimpleNamespace(seconds=2e-5 * len(siblings))  # type: ignore[assignment]
    chances = [SEER_ACCEPTANCE.chance(num) for num in siblings]
    trees = [DraftTree(tuple(range(8)), tuple(range(-1, 7)), tuple(chance**k for k in range(1, 9))) for chance in chances]
    planned = zip(siblings, planner.plan(trees).draft_tokens, strict=True)
    found = [(num_siblings, num) for num_siblings, (num, _) in zip(siblings, DraftModel(costs).plan(siblings, 0), strict=True)]
    assert sorted(found) == sorted(planned)


@pytest.mark.parametrize("tokens_per_step", [1.0, 1.7, 2.85, 8.5])
def test_the_chance_is_that_with_which_all_drafts_bring_what_was_measured(tokens_per_step: float) -> None:
    table = AcceptanceTable((0, 10), (1.0, tokens_per_step), 8)
    chance = table.chance(10)
    assert 1 + sum(chance**k for k in range(1, 9)) == pytest.approx(tokens_per_step)
    assert table.chance(99) == chance
    assert table.chance(5) == pytest.approx(AcceptanceTable((0, 1), (1.0, (1 + tokens_per_step) / 2), 8).chance(1))


def test_the_newest_row_is_given_up_and_computed_again() -> None:
    """After 15 tokens each, two rows have 40 and cannot draw another one each; the first then goes on alone."""
    ends, engine = ran(PreemptingEngine, ("a", 30, 5), ("b", 30, 5), cache_tokens=40, max_rows=8)
    steps_s = sum(1 + 0.02 + 0.001 * (10 + 2 * drawn) for drawn in range(15))
    assert ends["a"][0] == pytest.approx(1.0 + steps_s + sum(1 + 0.01 + 0.001 * (5 + drawn) for drawn in range(15, 30)))
    again_s = 0.1 * 15 + sum(1 + 0.01 + 0.001 * (5 + drawn) for drawn in range(15, 30))
    assert ends["b"] == (pytest.approx(ends["a"][0] + again_s), 30, True)
    assert (engine.num_preemptions, engine.num_computed_tokens, engine.num_decoded_tokens) == (1, 5 + 5 + 15, 60)


def test_no_more_rows_than_allowed_and_no_more_than_fit_begin() -> None:
    ends, engine = ran(PreemptingEngine, ("a", 4, 0), ("b", 4, 0), ("c", 4, 0), cache_tokens=1000, max_rows=2)
    assert ends["a"][0] == ends["b"][0] < ends["c"][0]
    ends, engine = ran(PreemptingEngine, ("a", 4, 50), ("b", 4, 50), cache_tokens=101, max_rows=8)
    assert ends["a"][0] < ends["b"][0]
    assert engine.num_preemptions == 0
