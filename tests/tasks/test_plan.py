from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from plait.config.task import TaskSettings
from plait.tasks.plan import TaskPlan, data_cursor, plan_of


def settings(**fields: Any) -> TaskSettings:
    environment = {"kind": "reasoning_gym", "name": "chain_sum"}
    return TaskSettings.model_validate({"name": "sums", "environment": environment, **fields})


def plan(**fields: Any) -> TaskPlan:
    values: dict[str, Any] = {"tenant": "local", "name": "sums", "warm_steps": 2, "rl_steps": 6}
    return TaskPlan(**(values | fields))


@given(st.integers(0, 5), st.integers(1, 20), st.integers(1, 8), st.integers(1, 30))
def test_each_question_belongs_to_exactly_one_step(warm_steps: int, examples: int, groups: int, rl_steps: int) -> None:
    warm = {"steps": warm_steps, "examples_per_step": examples}
    task = settings(warm_start=warm, groups_per_step=groups, steps=rl_steps)
    questions = [
        question
        for step in range(1, warm_steps + rl_steps + 1)
        for question in range(data_cursor(task, step), data_cursor(task, step) + (examples if step <= warm_steps else groups))
    ]
    assert questions == list(range(warm_steps * examples + rl_steps * groups))


def test_the_settings_become_a_plan() -> None:
    task = settings(
        steps=9,
        max_staleness=1,
        warm_start={"steps": 3},
        evaluation={"questions": 8, "every_steps": 2},
        early_stopping={"target": 0.9, "patience_evaluations": 4, "min_gain": 0.01},
    )
    assert plan_of(task) == TaskPlan(
        tenant="local", name="sums", warm_steps=3, rl_steps=9, max_staleness=1, has_evaluation=True, evaluate_every_steps=2,
        target_accuracy=0.9, patience_evaluations=4, min_gain=0.01, policy_task="sums",
    )  # fmt: skip
    assert plan_of(task).total_steps == 12


def test_plain_settings_stop_at_their_last_step_only() -> None:
    assert not plan_of(settings()).stops_early
    assert not plan_of(settings(evaluation={"questions": 0})).has_evaluation


def test_versions_are_scored_before_after_and_every_so_many_rl_steps() -> None:
    due = {version: plan(evaluate_every_steps=2).evaluation_due(version) for version in range(9)}
    assert {version: when for version, when in due.items() if when} == {0: "before", 4: "periodic", 6: "periodic", 8: "after"}


def test_without_a_period_only_the_ends_are_scored() -> None:
    assert [version for version in range(9) if plan().evaluation_due(version)] == [0, 8]


def test_without_questions_nothing_is_scored() -> None:
    without = plan(has_evaluation=False, evaluate_every_steps=1, target_accuracy=0.5)
    assert [version for version in range(9) if without.evaluation_due(version)] == []
    assert not without.stops_early
