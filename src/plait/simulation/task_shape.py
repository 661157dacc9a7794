"""What one simulated task asks of the cluster."""

import msgspec

from plait.simulation.lengths import Lengths
from plait.tasks.plan import TaskPlan


class TaskShape(msgspec.Struct, frozen=True):
    """Each step samples `groups_per_step` groups of `group_size` conversations of `turns` turns, and trains on all of them."""

    name: str
    steps: int
    groups_per_step: int
    group_size: int
    prompt_tokens: int
    lengths: Lengths
    delay_s: float = 0.0
    """Median time of the environment after each answer: tools, verifiers."""
    delay_sigma: float = 0.0
    """Of the natural logarithm of the delay; 0: it is always the same."""
    turns: int = 1
    observation_tokens: int = 0
    """What the environment answers between two turns."""
    tenant: str = "tenant"
    max_staleness: int = 0
    arrival_s: float = 0.0

    @property
    def plan(self) -> TaskPlan:
        return TaskPlan(
            tenant=self.tenant, name=self.name, warm_steps=0, rl_steps=self.steps, max_staleness=self.max_staleness,
            has_evaluation=False,
        )  # fmt: skip
