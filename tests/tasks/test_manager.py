"""The multi-task manager against a simulated driver that completes its commands in any order."""

from collections.abc import Callable
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from plait.tasks.commands import Command, Evaluate, OpenTask, RollOut, StopTask, Train, WarmStep
from plait.tasks.lifecycle import ENDED, TaskState
from plait.tasks.plan import TaskPlan
from tests.tasks.simulated_run import SimulatedRun, due_versions, last_step

NAMES = ("a", "b", "c", "d")
patient = settings(deadline=None)
randoms = st.randoms(use_true_random=False)


@st.composite
def plans(draw: st.DrawFn, name: str = "a", max_staleness: int = 3) -> TaskPlan:
    has_evaluation = draw(st.booleans())
    early = has_evaluation and draw(st.booleans())
    return TaskPlan(
        tenant="local",
        name=name,
        warm_steps=draw(st.integers(0, 3)),
        rl_steps=draw(st.integers(1, 6)),
        max_staleness=draw(st.integers(0, max_staleness)),
        has_evaluation=has_evaluation,
        evaluate_every_steps=draw(st.integers(1 if early else 0, 3)),
        target_accuracy=draw(st.none() | st.sampled_from([0.5, 0.9])) if early else None,
        patience_evaluations=draw(st.none() | st.integers(1, 2)) if early else None,
        min_gain=draw(st.sampled_from([0.0, 0.2])) if early else 0.0,
    )


@st.composite
def plan_sets(draw: st.DrawFn, max_staleness: int = 3, min_size: int = 1) -> list[TaskPlan]:
    return [draw(plans(name, max_staleness)) for name in NAMES[: draw(st.integers(min_size, len(NAMES)))]]


@st.composite
def score_functions(draw: st.DrawFn) -> Callable[[str, int], float]:
    values = draw(st.lists(st.sampled_from([0.0, 0.3, 0.6, 1.0]), min_size=40, max_size=40))
    return lambda task, version: values[10 * NAMES.index(task) + version]


@patient
@given(plan_sets(), randoms, score_functions())
def test_every_task_trains_each_step_once_and_ends(
    task_plans: list[TaskPlan], random: Random, score: Callable[[str, int], float]
) -> None:
    run = SimulatedRun(task_plans, random, score).start().run()
    for plan in task_plans:
        assert run.manager.state(plan.name) == TaskState.DONE
        last = run.committed[plan.name]
        assert run.trained(plan.name) == run.steps(plan.name) == list(range(1, last + 1))
        assert set(run.evaluated(plan.name)) == due_versions(plan, last)
        assert last_step(plan, score) <= last <= min(plan.total_steps, last_step(plan, score) + plan.max_staleness)
    assert run.manager.all_ended


@patient
@given(plan_sets(max_staleness=0), randoms, randoms, score_functions())
def test_a_strict_tasks_commands_depend_on_nothing_but_its_plan_and_scores(
    task_plans: list[TaskPlan], together: Random, alone: Random, score: Callable[[str, int], float]
) -> None:
    run = SimulatedRun(task_plans, together, score).start().run()
    for plan in task_plans:
        lone = SimulatedRun([plan], alone, score).start().run()
        assert run.commands[plan.name] == lone.commands[plan.name]


def _by_kind(commands: list[Command]) -> dict[type, list[Command]]:
    """What was told, each kind in order; how the kinds of a stale task alternate depends on which of its jobs is done first."""
    return {kind: [c for c in commands if isinstance(c, kind)] for kind in (OpenTask, WarmStep, RollOut, Train, Evaluate, StopTask)}


def _trouble(run: SimulatedRun, task: str, kind: str, after: int) -> SimulatedRun:
    """Something happens to `task` after so many events; all others go on."""
    for _ in range(after):
        if run.outstanding:
            run.complete_any()
    if run.manager.state(task) not in ENDED:
        if kind == "fail":
            run.take(run.manager.failed(task, "boom"))
        elif kind == "cancel":
            run.take(run.manager.cancel(task))
        elif run.manager.state(task) != TaskState.PAUSED:
            run.take(run.manager.pause(task))
    return run.run()


@patient
@given(plan_sets(min_size=2), randoms, randoms, score_functions(), st.sampled_from(["fail", "cancel", "pause"]), st.integers(0, 30))
def test_one_tasks_trouble_is_nobody_elses(
    task_plans: list[TaskPlan], first: Random, second: Random, score: Callable[[str, int], float], kind: str, after: int
) -> None:
    troubled = _trouble(SimulatedRun(task_plans, first, score).start(), "a", kind, after)
    calm = SimulatedRun(task_plans, second, score).start().run()
    for plan in task_plans[1:]:
        assert troubled.manager.state(plan.name) == TaskState.DONE
        if plan.max_staleness == 0:
            assert troubled.commands[plan.name] == calm.commands[plan.name]
        elif not plan.stops_early:
            assert _by_kind(troubled.commands[plan.name]) == _by_kind(calm.commands[plan.name])
    expected = {"fail": TaskState.FAILED, "cancel": TaskState.CANCELLED, "pause": TaskState.PAUSED}[kind]
    assert troubled.manager.state("a") in (expected, TaskState.DONE)


@patient
@given(plan_sets(), randoms, score_functions(), st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 5)), max_size=20))
def test_pausing_and_resuming_loses_and_repeats_nothing(
    task_plans: list[TaskPlan], random: Random, score: Callable[[str, int], float], toggles: list[tuple[str, int]]
) -> None:
    run = SimulatedRun(task_plans, random, score).start()
    for task, num_events in toggles:
        for _ in range(min(num_events, len(run.outstanding))):
            run.complete_any()
        if task not in run.commands or run.manager.state(task) in ENDED:
            continue
        is_paused = run.manager.state(task) == TaskState.PAUSED
        run.take(run.manager.resume(task) if is_paused else run.manager.pause(task))
    run.run()
    for plan in task_plans:
        if run.manager.state(plan.name) == TaskState.PAUSED:
            run.take(run.manager.resume(plan.name))
            run.run()
        last = run.committed[plan.name]
        assert run.manager.state(plan.name) == TaskState.DONE
        assert run.trained(plan.name) == list(range(1, last + 1))
        assert set(run.evaluated(plan.name)) == due_versions(plan, last)
        if plan.max_staleness == 0:
            assert last == last_step(plan, score)


@patient
@given(plan_sets(), randoms, score_functions(), st.integers(0, 60), st.integers(0, 60))
def test_a_killed_run_goes_on_with_exactly_what_was_left(
    task_plans: list[TaskPlan], random: Random, score: Callable[[str, int], float], first: int, second: int
) -> None:
    run = SimulatedRun(task_plans, random, score).start()
    for num_events in (first, second):
        for _ in range(num_events):
            if run.outstanding:
                run.complete_any()
        before = {plan.name: set(run.evaluations[plan.name]) for plan in task_plans}
        start = dict(run.committed)
        run = SimulatedRun(task_plans, random, score, run.committed, run.evaluations).start()
    run.run()
    for plan in task_plans:
        last = run.committed[plan.name]
        assert run.manager.state(plan.name) == TaskState.DONE
        assert run.trained(plan.name) == list(range(start[plan.name] + 1, last + 1))
        assert set(run.evaluated(plan.name)) == due_versions(plan, last) - before[plan.name]
        if plan.max_staleness == 0:
            assert last == last_step(plan, score)


@patient
@given(plan_sets(), randoms, score_functions(), st.integers(0, 40))
def test_losing_a_worker_and_opening_again_starts_nothing_twice(
    task_plans: list[TaskPlan], random: Random, score: Callable[[str, int], float], after: int
) -> None:
    run = SimulatedRun(task_plans, random, score).start()
    for _ in range(after):
        if run.outstanding:
            run.complete_any()
    for plan in task_plans:
        if plan.name in run.opened:
            assert run.manager.opened(plan.name, run.committed[plan.name], {}) == []
    run.run()
    assert all(run.manager.state(plan.name) == TaskState.DONE for plan in task_plans)


@patient
@given(plan_sets(), randoms, score_functions())
def test_no_order_of_outcomes_failures_and_orders_breaks_a_promise(
    task_plans: list[TaskPlan], random: Random, score: Callable[[str, int], float]
) -> None:
    run = SimulatedRun(task_plans, random, score).start()
    for _ in range(random.randrange(120)):
        task = random.choice(task_plans).name
        state = run.manager.state(task)
        chance = random.random()
        if chance < 0.03:
            run.take(run.manager.failed(task, "boom"))
        elif chance < 0.05:
            run.take(run.manager.cancel(task))
        elif chance < 0.15 and state not in (TaskState.PAUSED, *ENDED):
            run.take(run.manager.pause(task))
        elif chance < 0.3 and state == TaskState.PAUSED:
            run.take(run.manager.resume(task))
        elif run.outstanding:
            run.complete_any()
    for plan in task_plans:
        if run.manager.state(plan.name) == TaskState.PAUSED:
            run.take(run.manager.resume(plan.name))
    run.run()
    assert run.manager.all_ended
    assert run.manager.queued == ()
