"""Collects what a step trains on and what an evaluation measures.

- A group is complete or dropped: one whose environment failed for good is counted and logged, never scored as zero.
- A step whose groups were all dropped fails its task, naming the last cause.
- Samples are on disk before the step is trained.
"""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from plait.config.run import RunSettings
from plait.config.task import TaskSettings
from plait.environments.demonstration import render_demonstration
from plait.environments.failure import StageFailure
from plait.environments.protocol import Example
from plait.observe.events import AnyEvent, PhaseSpan, RewardError
from plait.observe.text import last_line
from plait.observe.under_way import UnderWay, Work
from plait.state.rundir import RunDirectory
from plait.state.samples import write_samples
from plait.tasks.batch_events import batch_event
from plait.tasks.episodes import EpisodeRunner, all_or_none
from plait.tasks.gate import batch_policies, mean_staleness
from plait.tasks.identity import ALONE, RunIdentity
from plait.tasks.phase_clock import PhaseClock
from plait.tasks.plan import data_cursor
from plait.tasks.ready_batch import ReadyBatch
from plait.tasks.sampling_plan import evaluation_params, training_params
from plait.tasks.texts import sample_record
from plait.training.datums import DatumBatch, demonstration_datums, trajectory_datums
from plait.training.schedule import learning_rate
from plait.types.errors import EnvironmentFailure
from plait.types.policy import AdapterRef
from plait.types.trajectory import Trajectory, TrajectoryBatch

Emit = Callable[[AnyEvent], None]


class Collector:
    def __init__(
        self,
        settings: RunSettings,
        directory: RunDirectory,
        runner: EpisodeRunner,
        emit: Emit,
        identity: RunIdentity = ALONE,
        under_way: UnderWay | None = None,
    ) -> None:
        self.settings, self.directory, self.runner, self.emit, self.identity = settings, directory, runner, emit, identity
        self._under_way = under_way or UnderWay()
        self._latest_failure: dict[str, str] = {}
        """By task."""

    # ---- RL steps

    async def collect(self, task: TaskSettings, step: int, ref: AdapterRef) -> ReadyBatch:
        """Roll out all groups of a step with one policy version."""
        clock, start = PhaseClock(time.time()), data_cursor(task, step)
        num_all = task.groups_per_step * task.group_size
        with self._under_way.doing(task.name, "rollout", f"rolling out step {step}", num_all) as work:
            jobs = [self._group(task, step, ref, g, start + g, clock, work) for g in range(task.groups_per_step)]
            groups = await asyncio.gather(*jobs)
        complete = [group for group in groups if group is not None]
        if not complete:
            raise self._failure_of_all(task.name, f"step {step}: the environment failed in every group")
        trajectories = tuple(t for group in complete for t in group)
        batch = TrajectoryBatch(self.identity.tenant, task.name, step, trajectories, len(groups) - len(complete))
        self._emit_phases(task.name, step, clock)
        await self._write_samples(self.directory.samples_file(task.name, step), task.name, step, trajectories)
        return self._ready(task, batch, clock)

    async def _group(
        self, task: TaskSettings, step: int, ref: AdapterRef, group: int, index: int, clock: PhaseClock, work: Work
    ) -> list[Trajectory] | None:
        stops = self.runner.tokenizers[task.name].stop_token_ids
        try:
            example = await self._example(task, index, clock)
        except EnvironmentFailure as failure:
            self._reporter(task.name, step, f"train-{index}")(failure)
            return None
        on_failure = self._reporter(task.name, step, example.example_id)
        params = [training_params(task, self.settings.seed, step, group, s, stops) for s in range(task.group_size)]
        queue = self.identity.key(task.name)
        siblings = f"{queue}@{ref.policy.version}/{step}/{group}"
        jobs = [
            _counted(work, self.runner.run(task, ref, queue, example, group, sample, params[sample], clock, on_failure, siblings))
            for sample in range(task.group_size)
        ]
        try:
            return await all_or_none(jobs)
        except EnvironmentFailure:
            return None  # reported already; the group is dropped whole

    async def _example(self, task: TaskSettings, index: int, clock: PhaseClock) -> Example:
        clock.in_environment(1, time.time())
        try:
            return await self.runner.environments.environment(task.name).example(index, "train")
        finally:
            clock.in_environment(-1, time.time())

    def _reporter(self, task: str, step: int, example_id: str) -> Callable[[EnvironmentFailure], None]:
        def report(failure: EnvironmentFailure) -> None:
            self._latest_failure[task] = last_line(str(failure))
            stage = failure.stage if isinstance(failure, StageFailure) else "episode"
            self.emit(RewardError(time_s=time.time(), task=task, step=step, example_id=example_id, stage=stage, error=str(failure)))

        return report

    def _failure_of_all(self, task: str, what: str) -> EnvironmentFailure:
        return EnvironmentFailure(f"{what}; the latest error: {self._latest_failure.get(task, 'unknown')}")

    def _emit_phases(self, task: str, step: int, clock: PhaseClock) -> None:
        for phase, start_s, end_s in clock.finish(time.time()):
            self.emit(PhaseSpan(time_s=end_s, task=task, phase=phase, step=step, start_s=start_s))

    def _ready(self, task: TaskSettings, batch: TrajectoryBatch, clock: PhaseClock) -> ReadyBatch:
        data = trajectory_datums(batch, task.advantage, task.loss, task.sampling.temperature)
        latest = self.identity.policy(task.name, batch.step - 1)
        event = msgspec.structs.replace(
            batch_event(batch, time.time()),
            num_groups_without_gradient=data.num_groups_without_gradient,
            num_trained_tokens=data.num_trained_tokens,
            rollout_s=clock.total_s("rollout"),
            tail_s=clock.tail_s,
            environment_s=clock.total_s("environment"),
            staleness_mean=mean_staleness(batch, latest),
        )
        rate = learning_rate(task.optimizer, batch.step - task.warm_start.steps, task.steps)
        return ReadyBatch(
            task=task.name, step=batch.step, datums=data.datums, policies=batch_policies(batch), learning_rate=rate,
            data_cursor=data_cursor(task, batch.step + 1), event=event, ready_s=time.time(),
        )  # fmt: skip

    # ---- supervised steps

    async def demonstrations(self, task: TaskSettings, step: int) -> ReadyBatch:
        """The supervised batch of a warm step."""
        environment, policy = self.runner.environments.environment(task.name), self.identity.policy(task.name, step - 1)
        start = data_cursor(task, step)

        async def one(index: int) -> list[tuple[int, ...]]:
            example = await environment.example(index, "train")
            segments = await render_demonstration(environment, self.runner.tokenizers[task.name], example, policy)
            return [segment.tokens for segment in segments]

        with self._under_way.doing(task.name, "demonstrations", f"getting worked answers for step {step}"):
            spans = await asyncio.gather(*(one(start + i) for i in range(task.warm_start.examples_per_step)))
        return self._warm_ready(task, step, demonstration_datums(spans))

    def _warm_ready(self, task: TaskSettings, step: int, data: DatumBatch) -> ReadyBatch:
        batch = TrajectoryBatch(self.identity.tenant, task.name, step, ())
        event = msgspec.structs.replace(
            batch_event(batch, time.time()),
            phase="warm_start",
            num_sequences=data.num_sequences,
            num_trained_tokens=data.num_trained_tokens,
            num_sampled_tokens=None,
        )
        return ReadyBatch(
            task=task.name, step=step, datums=data.datums, policies=[], learning_rate=task.warm_start.learning_rate,
            data_cursor=data_cursor(task, step + 1), event=event, ready_s=time.time(),
        )  # fmt: skip

    # ---- evaluation

    async def evaluate(self, task: TaskSettings, ref: AdapterRef) -> tuple[float, int, int]:
        """Share of held-out questions answered right, how many were scored, and how many failed in the environment."""
        environment, version = self.runner.environments.environment(task.name), ref.policy.version
        examples = await environment.evaluation_examples(task.evaluation.questions)
        clock = PhaseClock(time.time())
        stops, queue = self.runner.tokenizers[task.name].stop_token_ids, f"{self.identity.key(task.name)}#evaluation"

        async def one(index: int, example: Example) -> Trajectory | None:
            params = evaluation_params(task, self.settings.seed, index, stops)
            on_failure = self._reporter(task.name, version, example.example_id)
            try:
                episode = self.runner.run(task, ref, queue, example, index, 0, params, clock, on_failure)
                return await _counted(work, episode)
            except EnvironmentFailure:
                return None

        with self._under_way.doing(task.name, "evaluation", f"evaluating version {version}", len(examples)) as work:
            trajectories = await asyncio.gather(*(one(i, example) for i, example in enumerate(examples)))
        scored = tuple(t for t in trajectories if t is not None)
        if not scored:
            raise self._failure_of_all(task.name, f"evaluation of version {version}: no held-out question could be scored")
        await self._write_samples(self.directory.evaluation_file(task.name, version), task.name, version, scored)
        return math.fsum(map(_correctness, scored)) / len(scored), len(scored), len(trajectories) - len(scored)

    async def _write_samples(self, path: Path, task: str, step: int, trajectories: tuple[Trajectory, ...]) -> None:
        records = [sample_record(self.runner.tokenizers[task], task, step, t) for t in trajectories]
        await asyncio.to_thread(write_samples, path, records)


async def _counted(work: Work, episode: Coroutine[Any, Any, Trajectory]) -> Trajectory:
    """An episode, whose end counts."""
    try:
        return await episode
    finally:
        work.num_done += 1


def _correctness(trajectory: Trajectory) -> float:
    """The environment's own metric "correct" where it has one (rewards may give partial credit), else the reward."""
    return trajectory.metrics.get("correct", trajectory.reward)
