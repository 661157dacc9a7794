"""What a task is to do, as numbers. Versions, steps and the data cursor are functions of each other, so nothing can drift."""

import msgspec

from plait.config.task import TaskSettings
from plait.tasks.identity import ALONE, RunIdentity
from plait.types.policy import PolicyVersion


class TaskPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Steps 1..warm_steps are supervised, the rest up to `total_steps` are RL; step n makes version n.

    The last fields are explained with the settings of the same names.
    """

    tenant: str
    name: str
    warm_steps: int
    rl_steps: int
    max_staleness: int = 0
    has_evaluation: bool = True
    evaluate_every_steps: int = 0
    target_accuracy: float | None = None
    patience_evaluations: int | None = None
    min_gain: float = 0.0
    policy_task: str = ""
    """What the task's policies are called, if not `name`."""

    def policy(self, version: int) -> PolicyVersion:
        return PolicyVersion(self.tenant, self.policy_task or self.name, version)

    @property
    def total_steps(self) -> int:
        return self.warm_steps + self.rl_steps

    @property
    def stops_early(self) -> bool:
        """Whether a held-out score can end the task before its last step."""
        return self.has_evaluation and (self.target_accuracy is not None or self.patience_evaluations is not None)

    def is_warm(self, step: int) -> bool:
        return step <= self.warm_steps

    def evaluation_due(self, version: int) -> str | None:
        """Why version `version` is to be evaluated: "before", "periodic" or "after"; None if it is not."""
        if not self.has_evaluation:
            return None
        if version == 0:
            return "before"
        if version == self.total_steps:
            return "after"
        rl_version = version - self.warm_steps
        return "periodic" if self.evaluate_every_steps and rl_version > 0 and rl_version % self.evaluate_every_steps == 0 else None


def plan_of(settings: TaskSettings, identity: RunIdentity = ALONE) -> TaskPlan:
    stopping = settings.early_stopping
    return TaskPlan(
        tenant=identity.tenant,
        name=settings.name,
        warm_steps=settings.warm_start.steps,
        rl_steps=settings.steps,
        max_staleness=settings.max_staleness,
        has_evaluation=settings.evaluation.questions > 0,
        evaluate_every_steps=settings.evaluation.every_steps,
        target_accuracy=stopping.target if stopping else None,
        patience_evaluations=stopping.patience_evaluations if stopping else None,
        min_gain=stopping.min_gain if stopping else 0.0,
        policy_task=identity.key(settings.name),
    )


def data_cursor(settings: TaskSettings, step: int) -> int:
    """Index of the first training question of step `step`, whatever happened before it."""
    warm = settings.warm_start
    if step <= warm.steps:
        return (step - 1) * warm.examples_per_step
    return warm.steps * warm.examples_per_step + (step - 1 - warm.steps) * settings.groups_per_step
