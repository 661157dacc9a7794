"""A simulated engine against one that does every step by itself, and cases by hand."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.simulation.engine import SimulatedEngine
from plait.simulation.light_request import Counted
from plait.types.chunks import Chunk
from plait.types.policy import PolicyVersion
from plait.types.sampling import SamplingParams
from tests.simulation.even_costs import EvenCosts

POLICY = PolicyVersion("tenant", "task", 0)


def chunk(name: str, context: int, budget: int = 1000, stretch: int = 0, goes_on: bool = False) -> Chunk:
    tokens: tuple[int, ...] = Counted(context)  # type: ignore[assignment]
    params = SamplingParams(1000)
    return Chunk(name, POLICY, tokens, budget, params, generated_tokens=int(goes_on), generation=name, stretch_tokens=stretch)


@dataclass(frozen=True)
class Action:
    time_s: float
    kind: str
    """submit, cancel or end_stretches"""
    name: str = ""
    left: int = 0
    budget: int = 0
    stretch: int = 0
    context: int = 0
    goes_on: bool = False
    """From an earlier chunk, whose cache is here: nothing is computed again."""


Ends = dict[str, tuple[float, int, bool]]
"""Chunk -> (end, tokens, whether its generation is over)."""


@dataclass
class Run:
    ends: Ends = field(default_factory=dict)
    spans: list[tuple[float, float, int]] = field(default_factory=list)


def simulate(actions: Sequence[Action], fetch_s: float = 0.0, costs: EvenCosts | None = None) -> tuple[Run, SimulatedEngine]:
    env, run, left = simpy.Environment(), Run(), {action.name: action.left for action in actions if action.kind == "submit"}
    engine = SimulatedEngine(
        env, "e", costs or EvenCosts(), lambda c: left[c.request_id],
        lambda _, c: (0 if c.generated_tokens else len(c.context_tokens), fetch_s),
        lambda _, c, drawn, is_last: run.ends.update({c.request_id: (env.now, drawn, is_last)}),
        lambda _, start_s, end_s, rows: run.spans.append((start_s, end_s, rows)),
    )  # fmt: skip

    def act(action: Action) -> None:
        match action.kind:
            case "submit":
                engine.submit([chunk(action.name, action.context, action.budget, action.stretch, action.goes_on)])
            case "cancel":
                engine.cancel([action.name])
            case _:
                engine.end_stretches()

    def plan(action: Action) -> None:
        env.timeout(action.time_s).callbacks.append(lambda _: act(action))

    for action in actions:
        plan(action)
    env.run()
    return run, engine


def step_by_step(actions: Sequence[Action], costs: EvenCosts) -> Ends:
    """The same, one step after another."""
    ends, waiting = Ends(), sorted(actions, key=lambda a: a.time_s)
    rows: dict[str, Action] = {}
    most: dict[str, int] = {}
    drawn: dict[str, int] = {}
    now_s = 0.0
    while waiting or rows:
        if not rows and waiting[0].time_s > now_s:
            now_s = waiting[0].time_s
        joining: dict[str, Action] = {}
        while waiting and waiting[0].time_s <= now_s + 1e-9:
            action = waiting.pop(0)
            if action.kind == "submit":
                rows[action.name], drawn[action.name] = action, 0
                most[action.name] = min(action.left, action.budget + action.stretch)
                joining[action.name] = action
            elif action.kind == "cancel":
                joining.pop(action.name, None)
                rows.pop(action.name, None)
            else:
                for name in rows:
                    most[name] = min(most[name], max(rows[name].budget, drawn[name]))
        for name in [name for name in rows if drawn[name] and drawn[name] >= most[name]]:
            ends[name] = (now_s, drawn[name], most[name] >= rows.pop(name).left)
        if rows:
            contexts = [rows[name].context + drawn[name] for name in rows]
            seen = len(rows) * max(contexts) if costs.pads_contexts else sum(contexts)
            now_s += costs.prefill_s(sum(one.context for one in joining.values() if not one.goes_on))
            now_s += sum(costs.resume_s(one.context) for one in joining.values() if one.goes_on)
            now_s += costs.decode_step_s(len(rows), seen)
            drawn |= {name: drawn[name] + 1 for name in rows}
        for name in [name for name in rows if drawn[name] >= most[name]]:
            if not any(a.kind == "cancel" and a.name == name and a.time_s <= now_s for a in waiting):
                ends[name] = (now_s, drawn[name], most[name] >= rows[name].left)
                del rows[name]
    return ends


@st.composite
def histories(draw: st.DrawFn) -> list[Action]:
    """Times never fall on the end of a step, but for the very first."""
    actions: list[Action] = []
    for number in range(draw(st.integers(1, 12))):
        name, start_s = f"c{number}", draw(st.integers(0, 40)) + 0.000137 * (number + 1)
        left, budget, stretch = draw(st.integers(1, 30)), draw(st.integers(1, 12)), draw(st.sampled_from([0, 0, 20]))
        actions.append(Action(start_s, "submit", name, left, budget, stretch, draw(st.integers(0, 20)), draw(st.booleans())))
        if draw(st.integers(0, 4)) == 0:
            actions.append(Action(start_s + draw(st.integers(1, 20)) + 0.0000713, "cancel", name))
    if draw(st.booleans()):
        actions.append(Action(draw(st.integers(0, 60)) + 0.000019, "end_stretches"))
    return actions


@settings(deadline=None, max_examples=60)
@given(histories(), st.booleans(), st.sampled_from([0.0, 0.03]))
def test_it_does_what_an_engine_does_that_takes_one_step_after_another(
    actions: list[Action], pads_contexts: bool, resume_token_s: float
) -> None:
    costs = EvenCosts(pads_contexts, resume_token_s)
    run, engine = simulate(actions, costs=costs)
    expected = step_by_step(actions, costs)
    assert run.ends.keys() == expected.keys()
    for name, (end_s, tokens, is_last) in expected.items():
        assert run.ends[name] == (pytest.approx(end_s, abs=1e-6), tokens, is_last)
    assert (engine.num_rows, engine.context_tokens) == (0, 0)


@settings(deadline=None, max_examples=25)
@given(histories())
def test_it_never_does_two_things_at_once_and_all_its_work_is_told(actions: list[Action]) -> None:
    run, engine = simulate(actions)
    for (_, end_s, _), (start_s, _, _) in zip(run.spans, run.spans[1:], strict=False):
        assert end_s <= start_s + 1e-9
    assert all(start_s <= end_s and rows for start_s, end_s, rows in run.spans)
    assert engine.num_decoded_tokens >= sum(tokens for _, tokens, _ in run.ends.values())
    arrivals = {a.name: a.time_s for a in actions if a.kind == "submit"}
    assert all(end_s > arrivals[name] for name, (end_s, _, _) in run.ends.items())


def test_a_step_costs_what_its_rows_and_contexts_cost() -> None:
    run, _ = simulate([Action(0.0, "submit", "c", 3, 10, 0, 20)])
    steps_s = sum(1 + 0.01 + 0.001 * (20 + drawn) for drawn in range(3))
    assert run.ends["c"] == (pytest.approx(2.0 + steps_s), 3, True)
    assert run.spans == [(0.0, pytest.approx(2.0 + steps_s), 1)]


def test_who_comes_while_prompts_are_computed_waits_for_them_and_for_a_step() -> None:
    run, _ = simulate([Action(0.0, "submit", "a", 2, 10, 0, 100), Action(3.3, "submit", "b", 1, 10, 0, 10)])
    first_s = 10.0 + 1.01 + 0.1
    assert run.ends["b"] == (pytest.approx(first_s + 1.0 + 1.02 + 0.111), 1, True)
    assert run.spans[0] == (0.0, pytest.approx(first_s), 1)


def test_a_fetch_does_not_hold_up_others_and_fetches_share_the_link() -> None:
    actions = [Action(0.0, "submit", "a", 1, 10), Action(0.0, "submit", "b", 1, 10)]
    run, _ = simulate(actions, fetch_s=5.0)
    assert run.ends["a"][0] == pytest.approx(5.0 + 1.01)
    assert run.ends["b"][0] == pytest.approx(10.0 + 1.01)


def test_stretches_end_at_the_next_token_or_at_the_budget() -> None:
    actions = [
        Action(0.0, "submit", "past", 30, 2, 20), Action(0.0, "submit", "before", 30, 8, 20), Action(4.5, "end_stretches")
    ]  # fmt: skip
    run, _ = simulate(actions)
    assert run.ends["past"][1:] == (5, False)
    assert run.ends["before"][1:] == (8, False)
