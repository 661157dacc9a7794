"""Plans and stamps of hand-written cases."""

from typing import Any

from plait.tasks.plan import TaskPlan
from plait.types.policy import PolicyVersion


def strict(name: str = "a", **fields: Any) -> TaskPlan:
    values: dict[str, Any] = {"tenant": "local", "name": name, "warm_steps": 0, "rl_steps": 3, "has_evaluation": False}
    return TaskPlan(**(values | fields))


def stamps(task: str, version: int) -> list[PolicyVersion]:
    return [PolicyVersion("local", task, version)]
