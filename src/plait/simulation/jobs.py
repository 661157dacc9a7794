"""An RL job in simulated time: it issues the calls of its parts to the worker groups that it was placed on.

Its trace is told on the job's own clock (see `JobPart`), so waiting for others does not look like demand; and its slowdown compares
with that clock exactly.
"""

import random
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

import simpy

from plait.placement.job import Role
from plait.simulation.groups import SimulatedGroup
from plait.simulation.job_part import JobPart, OnRecord
from plait.simulation.job_shape import JobShape, PartShape

TOLERANCE_S = 1e-6
"""Times of years have errors of 1e-8 s."""


class SimulatedJob:
    """`on_step` and `on_end` are told as a step, and the last one, is trained."""

    def __init__(
        self, env: simpy.Environment, shape: JobShape, seed: str, on_step: Callable[["SimulatedJob"], None],
        on_end: Callable[["SimulatedJob"], None],
    ) -> None:  # fmt: skip
        self.env, self.shape, self._on_step, self._on_end = env, shape, on_step, on_end
        self._record: OnRecord | None = None
        self._parts = {role: self._part(role, shape.parts[role], seed) for role in shape.parts}
        for part in self._parts.values():
            part.on_ended = partial(self._ended, part)
        self._rollout, self._train = self._parts[Role.ROLLOUT], self._parts[Role.TRAIN]
        self._not_before_s = 0.0
        self._epoch = 0
        """Delays of earlier ones are void."""
        self.is_running = False

    def _part(self, role: Role, part: PartShape, seed: str) -> JobPart:
        name = f"{self.shape.job_id}/{role.value}"
        return JobPart(role, part, name, random.Random(f"{seed}/{name}"), deque(maxlen=self.shape.staleness + 2))

    @property
    def record(self) -> OnRecord | None:
        """Told of the calls that ended while it was set; of those of a stretch, when that ends or when this is changed."""
        return self._record

    @record.setter
    def record(self, record: OnRecord | None) -> None:
        for part in self._parts.values():
            part.tell(self._record)
        self._record = record

    @property
    def steps_done(self) -> int:
        return self._train.steps_done

    @property
    def own_s(self) -> float:
        """On the own clock, from its start: the end of the last trained step."""
        return self._train.own_end_s(self._train.steps_done - 1)

    def deployment(self, role: Role) -> str:
        return self._parts[role].deployment

    def bytes_of(self, role: Role) -> int:
        part = self._parts[role].shape
        return part.bytes_per_device * part.num_devices

    # ---- where it runs

    def start(self, groups: Mapping[Role, SimulatedGroup], start_s: float) -> None:
        """On these groups, not before `start_s`; goes on with the step after the last trained one."""
        self.is_running = True
        self._place(groups, start_s)
        self._advance()

    def withdraw(self, role: Role) -> None:
        """The part leaves its group, to go on elsewhere: what of a rollout's call is done is kept, a training call starts anew."""
        self._parts[role].withdraw(True, self.record)

    def resume(self, groups: Mapping[Role, SimulatedGroup], start_s: float) -> None:
        """On these groups; its next step begins not before `start_s`."""
        self._place(groups, start_s)
        for part in self._parts.values():
            if part.is_withdrawn and part.work is not None and part.work.ended_s is not None:
                part.is_withdrawn = False
                self._wait(part, part.work.ended_s)
            elif part.is_withdrawn:
                self._issue(part)
        self._advance()

    def stop(self) -> None:
        """It has no devices any more; what is not trained is lost."""
        self.is_running = False
        self._epoch += 1
        own_s = self.own_s
        for part in self._parts.values():
            part.stop(own_s)
        while self._rollout.steps_done > self._train.steps_done:
            self._rollout.step_lost()

    def _place(self, groups: Mapping[Role, SimulatedGroup], start_s: float) -> None:
        self._not_before_s = start_s
        for part in self._parts.values():
            part.group = groups[part.role]
        if start_s > self.env.now:
            self._later(start_s - self.env.now, self._advance)

    def _later(self, delay_s: float, act: Callable[[], None]) -> None:
        """Unless it has stopped by then."""
        epoch = self._epoch
        self.env.timeout(delay_s).callbacks.append(lambda _: act() if epoch == self._epoch else None)

    # ---- steps

    def _advance(self) -> None:
        """Begin what nothing keeps from it."""
        if not self.is_running:
            return
        rollout, train, shape = self._rollout, self._train, self.shape
        if (
            not rollout.is_in_step
            and rollout.steps_done < shape.steps
            and train.steps_done >= rollout.steps_done - shape.staleness
            and self.env.now >= self._not_before_s - TOLERANCE_S
        ):
            rollout.own_s = max(rollout.own_s, train.own_end_s(rollout.steps_done - 1 - shape.staleness))
            self._begin(rollout)
        if not train.is_in_step and rollout.steps_done > train.steps_done:
            train.own_s = max(train.own_s, rollout.own_end_s(train.steps_done))
            self._begin(train)

    def _begin(self, part: JobPart) -> None:
        part.draw(self.shape.steps)
        self._issue(part)

    def _issue(self, part: JobPart) -> None:
        part.issue(self.env.now, self.shape.fill)

    def _wait(self, part: JobPart, since_s: float | None = None) -> None:
        """For the next call, since now or since the one before ended."""
        delay_s = part.shape.delay_s
        self._later(delay_s if since_s is None else max(0.0, since_s + delay_s - self.env.now), lambda: self._issue(part))

    def _ended(self, part: JobPart, num_calls: int) -> None:
        since_s = part.work.ended_s if part.work is not None else None
        part.ended(num_calls, self._record)
        if part.calls_left:
            self._wait(part, since_s) if part.shape.delay_s else self._issue(part)
        elif part.after_s:
            self._later(part.after_s, lambda: self._step_ended(part))
        else:
            self._step_ended(part)

    def _step_ended(self, part: JobPart) -> None:
        part.step_ended()
        if part is self._train:
            if part.steps_done == self.shape.steps:
                self.is_running = False
                self._on_end(self)
                return
            self._on_step(self)
        self._advance()
