"""What the compared systems may not do, whatever the tasks: each is held to the rule that it is named after."""

from itertools import pairwise

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.rollout.concurrency import ConcurrencyController
from plait.rollout.context_scheduler import ContextScheduler
from plait.simulation.baselines import OneAtATime, Rounds, exclusive_scheduler
from plait.simulation.light_request import light_request
from plait.simulation.rollout import SimulatedRollout
from plait.simulation.step_record import StepRecord
from plait.simulation.task_shape import TaskShape
from plait.simulation.trainer import SimulatedTrainer
from plait.types.policy import PolicyVersion
from tests.simulation.even_costs import EvenCosts
from tests.simulation.test_task_laws import LENGTHS, Watched

few = settings(deadline=None, max_examples=10)
tasks = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(0, 40)), min_size=2, max_size=3)
Drawn = list[tuple[int, int, int]]
"""Of each task its steps, groups a step, and arrival."""


def shapes(drawn: Drawn, **changes: object) -> list[TaskShape]:
    return [
        TaskShape(f"t{number}", steps, groups, 2, 10, LENGTHS, delay_s=2.0, arrival_s=arrival_s, **changes)  # type: ignore[arg-type]
        for number, (steps, groups, arrival_s) in enumerate(drawn)
    ]


@few
@given(tasks, st.integers(0, 99))
def test_one_at_a_time_begins_as_the_one_before_has_ended(drawn: Drawn, seed: int) -> None:
    run = Watched("own", 2, seed=seed, policy=OneAtATime())
    run.run(shapes(drawn))
    spans = sorted(span_of([step for step in run.steps if step.task == f"t{number}"]) for number in range(len(drawn)))
    assert sum(steps for steps, _, _ in drawn) == len(run.steps)
    for (_, end_s), (start_s, _) in pairwise(spans):
        assert start_s >= end_s
    arrivals_s = sorted(arrival_s for _, _, arrival_s in drawn)
    assert spans[0][0] == arrivals_s[0], "the first need not wait"


def span_of(steps: list[StepRecord]) -> tuple[float, float]:
    return min(step.start_s for step in steps), max(step.end_s for step in steps)


@few
@given(tasks, st.integers(0, 99))
def test_in_rounds_nobody_trains_before_all_have_rolled_out_nor_rolls_out_before_all_have_trained(drawn: Drawn, seed: int) -> None:
    run = Watched("own", 2, seed=seed, policy=Rounds())
    run.run(shapes(drawn))
    assert sum(steps for steps, _, _ in drawn) == len(run.steps)
    for one in run.steps:
        for other in run.steps:
            assert one.ready_s <= other.train_start_s or one.start_s >= other.end_s
    starts = {step.start_s for step in run.steps}
    assert len(starts) <= max(steps for steps, _, _ in drawn) + len(drawn), "who is ready begins with the others"


@few
@given(tasks, st.integers(0, 99))
def test_an_exclusive_buffer_decodes_one_task_s_rows_at_a_time(drawn: Drawn, seed: int) -> None:
    run = Watched("own", 1, seed=seed, scheduler=exclusive_scheduler())
    run.run(shapes(drawn))
    assert sum(steps for steps, _, _ in drawn) == len(run.steps)
    times: list[tuple[float, float, str]] = []
    for (task, _), requests in run.requests.items():
        times += [(end_s - 1.0, end_s, task) for _, end_s, _ in requests]  # Its last step of decoding took a second, at least.
    times.sort()
    for (_, end_s, task), (start_s, _, other) in pairwise(times):
        assert task == other or start_s >= end_s - 1e-9


def test_micro_batches_of_tenants_take_turns() -> None:
    """A short update of one passes the long one of another, but not that of its own tenant."""
    trainer = SimulatedTrainer(simpy.Environment(), "trainer", 100)
    ended: list[str] = []
    for name, tenant, num_tokens in (("long", "x", 1000), ("own", "x", 100), ("other", "y", 100)):
        trainer.submit(name, tenant, num_tokens, EvenCosts(), lambda _, name=name: ended.append(name))  # type: ignore[misc]
    trainer.env.run()
    assert ended[0] == "other"
    assert trainer.env.now == pytest.approx(0.01 * 1200 + 3 * 1.5)


def test_engines_tell_their_controllers_all_that_they_did_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, float, int]] = []
    real = ConcurrencyController.observe

    def watched(controller: ConcurrencyController, num_tokens: int, seconds: float, num_rows: int) -> None:
        told.append((num_tokens, seconds, num_rows))
        real(controller, num_tokens, seconds, num_rows)

    monkeypatch.setattr(ConcurrencyController, "observe", watched)
    run = Watched("own", 2, adapts_rows=True)
    run.run(shapes([(2, 3, 0), (2, 3, 0)]))
    engines = run.rollout.engines.values()
    assert sum(num for num, _, _ in told) == sum(engine.num_computed_tokens + engine.num_decoded_tokens for engine in engines)
    assert sum(seconds for _, seconds, _ in told) == pytest.approx(sum(run.busy_s(engine.name) for engine in engines))
    assert all(num_rows > 0 for _, _, num_rows in told)
    start = SimulatedRollout(run.env, exclusive_scheduler(), {"e": EvenCosts()}, 300, 64, 9, adapts_rows=True)
    assert start.concurrency["e"].limit == ConcurrencyController(64, 32).limit, "as in the service"


def test_finished_siblings_are_counted_while_their_group_is_here() -> None:
    env, seen = simpy.Environment(), list[int]()
    rollout = SimulatedRollout(env, ContextScheduler(), {"e": EvenCosts()}, 300, 6, 9)
    for number, length in enumerate((3, 5, 7, 9)):
        request = light_request(f"r{number}", "task", PolicyVersion("x", "task", 0), 5, 20, "g")
        rollout.submit(request, length, lambda _: seen.append(rollout.num_finished["g"]))
    env.run()
    assert seen == [1, 2, 3, 0]
