"""An RL job in simulated time: it issues the calls of its parts to the worker groups that it was placed on.

Beside the real clock each part has its job's *own* clock: when each call would have ended had the job been alone, with the same
durations. Its trace is told on that clock, so waiting for others does not look like demand; and slowdowns compare with it exactly.
"""

import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import simpy

from plait.placement.demand_trace import FunctionRecord
from plait.placement.job import Role
from plait.scheduling.function_call import FunctionCall
from plait.simulation.groups import SimulatedGroup
from plait.simulation.job_shape import JobShape, PartShape

OnRecord = Callable[[FunctionRecord], None]


@dataclass(slots=True)
class _Part:
    role: Role
    shape: PartShape
    deployment: str
    rng: random.Random
    ends_s: deque[float]
    """On the own clock: of its latest steps."""
    group: SimulatedGroup | None = None
    steps_done: int = 0
    is_in_step: bool = False
    calls_left: int = 0
    call_s: float = 0.0
    """Of each call of the step."""
    left_s: float = 0.0
    """Of the call that waits or runs."""
    call_id: str = ""
    """Of the call that waits or runs; empty in a delay, or if it was withdrawn."""
    is_withdrawn: bool = False
    own_s: float = 0.0

    def draw(self, steps: int) -> None:
        """What the calls of the next step will take."""
        factor = 1 + self.shape.drift * (self.steps_done / (steps - 1) if steps > 1 else 0.0)
        if self.shape.jitter:
            factor *= self.rng.lognormvariate(0.0, self.shape.jitter)
        self.call_s = self.left_s = self.shape.call_s * factor / self.shape.num_calls
        self.calls_left, self.is_in_step = self.shape.num_calls, True


class SimulatedJob:
    """`on_step` and `on_end` are told as a step, and the last one, is trained; `record`, if set, of each call that ended."""

    def __init__(
        self, env: simpy.Environment, shape: JobShape, seed: str, on_step: Callable[["SimulatedJob"], None],
        on_end: Callable[["SimulatedJob"], None],
    ) -> None:  # fmt: skip
        self.env, self.shape, self._on_step, self._on_end = env, shape, on_step, on_end
        self.record: OnRecord | None = None
        self._parts = {role: self._part(role, part, seed) for role, part in shape.parts.items()}
        self._rollout, self._train = self._parts[Role.ROLLOUT], self._parts[Role.TRAIN]
        self._rolled_s: deque[float] = deque()
        """On the own clock: ends of rollouts that are not trained yet."""
        self._not_before_s = 0.0
        self._epoch = 0
        """Delays of earlier ones are void."""
        self._num_calls = 0
        self.is_running = False

    def _part(self, role: Role, part: PartShape, seed: str) -> _Part:
        name = f"{self.shape.job_id}/{role.value}"
        return _Part(role, part, name, random.Random(f"{seed}/{name}"), deque(maxlen=self.shape.staleness + 1))

    @property
    def steps_done(self) -> int:
        return self._train.steps_done

    @property
    def own_s(self) -> float:
        """On the own clock, from its start: the end of the last trained step."""
        return self._train.ends_s[-1] if self._train.ends_s else 0.0

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
        self._withdraw(self._parts[role], keeps_rollout=True)

    def resume(self, groups: Mapping[Role, SimulatedGroup], start_s: float) -> None:
        """On these groups; its next step begins not before `start_s`."""
        self._place(groups, start_s)
        for part in self._parts.values():
            if part.is_withdrawn:
                self._issue(part)
        self._advance()

    def stop(self) -> None:
        """It has no devices any more; what is not trained is lost."""
        self.is_running = False
        self._epoch += 1
        for part in self._parts.values():
            self._withdraw(part, keeps_rollout=False)
            part.group, part.is_in_step, part.is_withdrawn = None, False, False
            part.own_s = min(part.own_s, self.own_s)
        self._rollout.steps_done = self._train.steps_done
        self._rolled_s.clear()

    def _place(self, groups: Mapping[Role, SimulatedGroup], start_s: float) -> None:
        self._not_before_s = start_s
        for part in self._parts.values():
            part.group = groups[part.role]
        if start_s > self.env.now:
            epoch = self._epoch
            self.env.timeout(start_s - self.env.now).callbacks.append(lambda _: self._advance() if epoch == self._epoch else None)

    def _withdraw(self, part: _Part, keeps_rollout: bool) -> None:
        if not part.call_id or part.group is None:
            return
        ran_s = part.group.withdraw(part.call_id)
        part.call_id, part.is_withdrawn = "", True
        if keeps_rollout and part.role is Role.ROLLOUT:
            part.left_s = max(0.0, part.left_s - ran_s)

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
            and self.env.now >= self._not_before_s
        ):
            rollout.own_s = max(rollout.own_s, self._trained_s(rollout.steps_done - 1 - shape.staleness))
            self._begin(rollout)
        if not train.is_in_step and rollout.steps_done > train.steps_done:
            train.own_s = max(train.own_s, self._rolled_s.popleft())
            self._begin(train)

    def _trained_s(self, step: int) -> float:
        """On the own clock: the end of a training step, one of the latest."""
        ends_s = self._train.ends_s
        index = step - (self._train.steps_done - len(ends_s))
        return ends_s[index] if 0 <= index < len(ends_s) else 0.0

    def _begin(self, part: _Part) -> None:
        part.draw(self.shape.steps)
        self._issue(part)

    def _issue(self, part: _Part) -> None:
        self._num_calls += 1
        part.is_withdrawn = False
        part.call_id = f"{part.deployment}/{self._num_calls}"
        function = "sample" if part.role is Role.ROLLOUT else "forward_backward" if part.calls_left > 1 else "optim_step"
        call = FunctionCall(part.call_id, part.deployment, function, part.role.value, 0, self.env.now)
        assert part.group is not None
        part.group.submit(call, part.left_s, part.role, lambda: self._ended(part, function), self.shape.fill)

    def _ended(self, part: _Part, function: str) -> None:
        part.call_id = ""
        start_s, part.own_s = part.own_s, part.own_s + part.call_s
        if self.record is not None:
            devices, num_bytes = part.shape.num_devices, part.shape.bytes_per_device
            self.record(FunctionRecord(start_s, part.own_s, function, part.role, devices, num_bytes))
        part.calls_left -= 1
        part.left_s = part.call_s
        if not part.calls_left:
            self._step_ended(part)
        elif part.shape.delay_s:
            self._wait(part)
        else:
            self._issue(part)

    def _wait(self, part: _Part) -> None:
        epoch = self._epoch
        part.own_s += part.shape.delay_s
        end = self.env.timeout(part.shape.delay_s)
        end.callbacks.append(lambda _: self._issue(part) if epoch == self._epoch else None)

    def _step_ended(self, part: _Part) -> None:
        part.is_in_step = False
        part.steps_done += 1
        if part is self._rollout:
            self._rolled_s.append(part.own_s)
        else:
            part.ends_s.append(part.own_s)
            if part.steps_done == self.shape.steps:
                self.is_running = False
                self._on_end(self)
                return
            self._on_step(self)
        self._advance()
