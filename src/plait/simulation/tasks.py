"""Training tasks in simulated time, driven by the service's own task manager."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import simpy

from plait.rollout.request import GenerationRequest
from plait.simulation.costs import CostModel
from plait.simulation.light_request import light_request
from plait.simulation.rollout import SimulatedRollout
from plait.simulation.step_record import StepRecord
from plait.simulation.task_shape import TaskShape
from plait.simulation.trainer import SimulatedTrainer
from plait.tasks.commands import Command, Evaluate, OpenTask, RollOut, StopTask, Train, WarmStep
from plait.tasks.manager import TaskManager
from plait.types.policy import PolicyVersion

OnStep = Callable[[str, int, float], None]
"""(task, step, time) of each committed step."""
DelayOf = Callable[[TaskShape, int, int, int, int], float]
"""(Task, step, group, sample, turn) -> seconds that the environment takes."""
OnRequest = Callable[[str, int, float, float, int], None]
"""(task, step, start, end, tokens drawn) of each generation that counts."""


@dataclass(slots=True, eq=False)
class _Batch:
    shape: TaskShape
    step: int
    policy: PolicyVersion
    start_s: float
    num_samples: int
    left: int
    """Samples that are not scored; 0: it is closed, and whatever still comes is thrown away."""
    num_tokens: int = 0
    """To train on: the trainer computes a group's prompt once."""
    num_sampled_tokens: int = 0
    tail_start_s: float = 0.0
    generating: dict[str, None] = field(default_factory=dict)
    """Requests under way, in order."""
    ready_s: float = 0.0


class SimulatedTasks:
    """`manager`: a compared system's. With `knows_lengths` requests say how long they become, and have no siblings.

    `delay_s`: instead of the shapes' own delays. `over_issue` times the groups are issued; those that end first are kept, the
    others thrown away.
    """

    def __init__(
        self, env: simpy.Environment, rollout: SimulatedRollout, trainer: SimulatedTrainer, train_costs: CostModel, seed: int,
        on_step: OnStep | None = None, on_record: Callable[[StepRecord], None] | None = None, manager: TaskManager | None = None,
        *, on_request: OnRequest | None = None, knows_lengths: bool = False, over_issue: int = 1, delay_s: DelayOf | None = None,
    ) -> None:  # fmt: skip
        self.env, self.rollout, self.trainer, self._train_costs = env, rollout, trainer, train_costs
        self.manager = TaskManager() if manager is None else manager
        self._seed, self._knows_lengths, self._over_issue = str(seed), knows_lengths, over_issue
        self._delay_of = self._drawn_delay_s if delay_s is None else delay_s
        self._on_step, self._on_record, self._on_request = on_step, on_record, on_request
        self._shapes: dict[str, TaskShape] = {}
        self._batches: dict[tuple[str, int], _Batch] = {}
        """From their rollout to their commit."""
        self.end_s = 0.0
        """Of the latest committed step. The clock may go on past it: timers of what was cut short run out as well."""

    @property
    def steps_under_way(self) -> float:
        """Each as the share of its samples that is scored."""
        return sum(1 - batch.left / batch.num_samples for batch in self._batches.values())

    def add(self, shape: TaskShape) -> None:
        """It comes at its `arrival_s`."""
        self._shapes[shape.name] = shape
        delay_s = max(0.0, shape.arrival_s - self.env.now)
        self.env.timeout(delay_s).callbacks.append(lambda _: self._do(self.manager.add(shape.plan)))

    def _do(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case OpenTask(task):
                    self._open(task)
                case RollOut(task, step, version):
                    self._roll_out(self._shapes[task], step, version)
                case Train(task, step):
                    self._train(self._batches[task, step])
                case StopTask(task):
                    del self._shapes[task]
                case Evaluate() | WarmStep():
                    raise AssertionError("simulated tasks have neither evaluations nor warm steps")

    def _open(self, task: str) -> None:
        """When all tasks that come at this moment are known."""
        self.env.timeout(0).callbacks.append(lambda _: self._do(self.manager.opened(task, 0)))

    # ---- rollout

    def _roll_out(self, shape: TaskShape, step: int, version: int) -> None:
        num_samples = shape.groups_per_step * shape.group_size
        prompts = shape.groups_per_step * shape.prompt_tokens
        batch = _Batch(shape, step, shape.plan.policy(version), self.env.now, num_samples, num_samples, prompts)
        self._batches[shape.name, step] = batch
        for group in range(shape.groups_per_step * self._over_issue):
            for sample in range(shape.group_size):
                self._turn(batch, (group, sample), shape.prompt_tokens, 0)

    def _turn(self, batch: _Batch, who: tuple[int, int], context_tokens: int, turn: int, follows: str = "") -> None:
        shape, start_s = batch.shape, self.env.now
        group = f"{shape.name}/{batch.step}/{who[0]}"
        name = f"{group}/{who[1]}/{turn}"
        length = shape.lengths.draw(self._seed, group, who[1] + shape.group_size * turn)
        most = length if self._knows_lengths else shape.lengths.max_tokens
        prompt = "" if turn else group
        own_group = "" if self._knows_lengths else prompt
        request = light_request(name, shape.name, batch.policy, context_tokens, most, own_group, prompt)
        batch.generating[name] = None
        self.rollout.submit(request, length, lambda done: self._answered(batch, who, done, turn, start_s), follows)

    def _answered(self, batch: _Batch, who: tuple[int, int], done: GenerationRequest, turn: int, start_s: float) -> None:
        shape = batch.shape
        del batch.generating[done.request_id]
        batch.num_sampled_tokens += len(done.tokens)
        if self._on_request is not None:
            self._on_request(shape.name, batch.step, start_s, self.env.now, len(done.tokens))
        num_tokens = len(done.context_tokens) + len(done.tokens)
        goes_on = turn + 1 < shape.turns
        if goes_on:
            self.rollout.keep(done)

        def react(_: object) -> None:
            if not batch.left:
                self.rollout.caches.forget(done.request_id)
            elif goes_on:
                self._turn(batch, who, num_tokens + shape.observation_tokens, turn + 1, done.request_id)
            else:
                self._scored(batch, num_tokens - shape.prompt_tokens)

        self.env.timeout(self._delay_of(shape, batch.step, *who, turn)).callbacks.append(react)

    def _drawn_delay_s(self, shape: TaskShape, step: int, group: int, sample: int, turn: int) -> float:
        if not shape.delay_sigma:
            return shape.delay_s
        name = f"{self._seed}/{shape.name}/{step}/{group}/{sample}/{turn}"
        return shape.delay_s * random.Random(name).lognormvariate(0.0, shape.delay_sigma)

    def _scored(self, batch: _Batch, num_tokens: int) -> None:
        batch.left -= 1
        batch.num_tokens += num_tokens
        if batch.left >= batch.num_samples // 10:
            batch.tail_start_s = self.env.now
        if batch.left:
            return
        for request_id in list(batch.generating):
            self.rollout.cancel(request_id)
        batch.generating.clear()
        batch.ready_s = self.env.now
        self._do(self.manager.batch_ready(batch.shape.name, batch.step, [batch.policy]))

    # ---- training

    def _train(self, batch: _Batch) -> None:
        self.trainer.submit(
            f"{batch.shape.name}/{batch.step}", batch.shape.tenant, batch.num_tokens, self._train_costs,
            lambda first_s: self._committed(batch, first_s),
        )  # fmt: skip

    def _committed(self, batch: _Batch, first_s: float) -> None:
        name, step = batch.shape.name, batch.step
        del self._batches[name, step]
        self.end_s = self.env.now
        if self._on_record is not None:
            times_s = (batch.start_s, batch.tail_start_s, batch.ready_s, first_s, self.env.now)
            self._on_record(StepRecord(name, step, *times_s, batch.num_tokens, batch.num_sampled_tokens))
        if self._on_step is not None:
            self._on_step(name, step, self.env.now)
        self._do(self.manager.committed(name, step))
