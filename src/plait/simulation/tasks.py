"""Training tasks in simulated time, driven by the service's own task manager."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import simpy

from plait.rollout.request import GenerationRequest
from plait.simulation.costs import CostModel
from plait.simulation.lengths import Lengths
from plait.simulation.light_request import light_request
from plait.simulation.rollout import SimulatedRollout
from plait.simulation.trainer import SimulatedTrainer
from plait.tasks.commands import Command, Evaluate, OpenTask, RollOut, Train
from plait.tasks.manager import TaskManager
from plait.tasks.plan import TaskPlan
from plait.types.policy import PolicyVersion


class TaskShape(msgspec.Struct, frozen=True):
    """What one task asks of the cluster."""

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
    tenant: str = "tenant"
    max_staleness: int = 0
    arrival_s: float = 0.0

    @property
    def plan(self) -> TaskPlan:
        return TaskPlan(
            tenant=self.tenant, name=self.name, warm_steps=0, rl_steps=self.steps, max_staleness=self.max_staleness,
            has_evaluation=False,
        )  # fmt: skip


@dataclass(slots=True)
class _Batch:
    left: int
    num_tokens: int = 0


class SimulatedTasks:
    """`on_step` is told (task, step, time) of each committed step."""

    def __init__(
        self, env: simpy.Environment, rollout: SimulatedRollout, trainer: SimulatedTrainer, train_costs: CostModel, seed: int,
        on_step: Callable[[str, int, float], None] | None = None,
    ) -> None:  # fmt: skip
        self.env, self.rollout, self.trainer, self._train_costs = env, rollout, trainer, train_costs
        self.manager = TaskManager()
        self._seed, self._on_step = str(seed), on_step
        self._shapes: dict[str, TaskShape] = {}
        self._batches: dict[tuple[str, int], _Batch] = {}

    def add(self, shape: TaskShape) -> None:
        """It comes at its `arrival_s`."""
        self._shapes[shape.name] = shape
        delay_s = max(0.0, shape.arrival_s - self.env.now)
        self.env.timeout(delay_s).callbacks.append(lambda _: self._do(self.manager.add(shape.plan)))

    def _do(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case OpenTask(task):
                    self._do(self.manager.opened(task, 0))
                case RollOut(task, step, version):
                    self._roll_out(self._shapes[task], step, version)
                case Train(task, step):
                    self._train(self._shapes[task], step)
                case Evaluate():
                    raise AssertionError("simulated tasks have no evaluations")

    def _roll_out(self, shape: TaskShape, step: int, version: int) -> None:
        policy = shape.plan.policy(version)
        self._batches[shape.name, step] = _Batch(shape.groups_per_step * shape.group_size)
        for group in range(shape.groups_per_step):
            for sample in range(shape.group_size):
                self._turn(shape, step, policy, (group, sample), shape.prompt_tokens, 0)

    def _turn(
        self, shape: TaskShape, step: int, policy: PolicyVersion, who: tuple[int, int], context_tokens: int, turn: int
    ) -> None:
        group = f"{shape.name}/{step}/{who[0]}"
        name = f"{group}/{who[1]}/{turn}"
        length = shape.lengths.draw(self._seed, group, who[1] + shape.group_size * turn)
        own_group = group if turn == 0 else ""
        request = light_request(name, shape.name, policy, context_tokens, shape.lengths.max_tokens, own_group)
        self.rollout.submit(request, length, lambda done: self._answered(shape, step, policy, who, done, turn))

    def _answered(
        self, shape: TaskShape, step: int, policy: PolicyVersion, who: tuple[int, int], done: GenerationRequest, turn: int
    ) -> None:
        context_tokens = len(done.context_tokens) + len(done.tokens)

        def react(_: object) -> None:
            if turn + 1 < shape.turns:
                self._turn(shape, step, policy, who, context_tokens, turn + 1)
            else:
                self._scored(shape, step, policy, context_tokens)

        self.env.timeout(self._delay_s(shape, done.request_id)).callbacks.append(react)

    def _delay_s(self, shape: TaskShape, name: str) -> float:
        if not shape.delay_sigma:
            return shape.delay_s
        return shape.delay_s * random.Random(f"{self._seed}/{name}").lognormvariate(0.0, shape.delay_sigma)

    def _scored(self, shape: TaskShape, step: int, policy: PolicyVersion, num_tokens: int) -> None:
        batch = self._batches[shape.name, step]
        batch.left -= 1
        batch.num_tokens += num_tokens
        if not batch.left:
            self._do(self.manager.batch_ready(shape.name, step, [policy]))

    def _train(self, shape: TaskShape, step: int) -> None:
        num_tokens = self._batches.pop((shape.name, step)).num_tokens
        self.trainer.submit(
            f"{shape.name}/{step}", shape.tenant, num_tokens, self._train_costs, lambda: self._committed(shape.name, step)
        )

    def _committed(self, task: str, step: int) -> None:
        if self._on_step is not None:
            self._on_step(task, step, self.env.now)
        self._do(self.manager.committed(task, step))
