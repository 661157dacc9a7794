"""One part of a simulated job: the steps and calls it has done, and the job's own clock there.

The *own* clock says when each call would have ended had the job been alone, with the same durations.
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from plait.placement.job import Role
from plait.scheduling.function_call import FunctionCall
from plait.simulation.call_stretch import CallStretch
from plait.simulation.ended_calls import EndedCalls
from plait.simulation.groups import SimulatedGroup
from plait.simulation.job_shape import PartShape

ROLLOUT, TRAIN = Role.ROLLOUT, Role.TRAIN
"""Members of an enumeration are looked up slowly, and these with every call."""
OnRecord = Callable[[EndedCalls], None]


@dataclass(slots=True)
class JobPart:
    """`ends_s`: on the own clock, of its latest steps."""

    role: Role
    shape: PartShape
    deployment: str
    rng: random.Random
    ends_s: deque[float]
    on_ended: Callable[[int], None] = lambda num_calls: None
    """Told of each stretch, how many of its calls have ended."""
    group: SimulatedGroup | None = None
    steps_done: int = 0
    is_in_step: bool = False
    calls_left: int = 0
    call_s: float = 0.0
    """Of each call of the step."""
    after_s: float = 0.0
    """That the step takes after its last call."""
    left_s: float = 0.0
    """Of the next call; less than `call_s` if it ran elsewhere."""
    call_id: str = ""
    """Of what waits or runs; empty in a delay, or if it was withdrawn."""
    is_withdrawn: bool = False
    own_s: float = 0.0
    work: CallStretch | None = None
    """The latest that was submitted."""
    stream: str = field(init=False)
    """Of its calls in a queue."""
    _last: FunctionCall | None = field(default=None, repr=False)
    _num_issued: int = field(default=0, repr=False)
    _num_told: int = field(default=0, repr=False)
    """Calls of what runs whose end was told already."""

    def __post_init__(self) -> None:
        self.stream = self.role.value

    def draw(self, steps: int) -> None:
        """What the calls of the next step will take."""
        factor = 1 + self.shape.drift * (self.steps_done / (steps - 1) if steps > 1 else 0.0)
        if self.shape.jitter:
            factor *= self.rng.lognormvariate(0.0, self.shape.jitter)
        self.call_s = self.left_s = self.shape.call_s * factor / self.shape.num_calls
        self.after_s = self.shape.after_s
        if self.shape.after_jitter:
            self.after_s *= self.rng.lognormvariate(0.0, self.shape.after_jitter)
        self.calls_left, self.is_in_step = self.shape.num_calls, True

    def issue(self, now_s: float, fill: float) -> None:
        """All calls that are left of the step; only the next one if part of it ran elsewhere."""
        assert self.group is not None
        self._num_issued += 1
        self.is_withdrawn = False
        self.call_id = f"{self.deployment}/{self._num_issued}"
        num_calls = self.calls_left if self.left_s == self.call_s else 1
        is_training = self.role is TRAIN
        function = "sample" if not is_training else "forward_backward" if self.calls_left > 1 else "optim_step"
        call = FunctionCall(self.call_id, self.deployment, function, self.stream, 0, now_s)
        last = self._last_call() if num_calls > 1 and is_training else None
        self.work = CallStretch(call, self.role, self.left_s, self.on_ended, num_calls, self.shape.delay_s, fill, last, num_calls)
        self.group.submit(self.work)

    def _last_call(self) -> FunctionCall:
        """Of a training step. It stands for its kind, never by itself: one for all steps."""
        if self._last is None:
            self._last = FunctionCall(f"{self.deployment}/last", self.deployment, "optim_step", self.stream, 0, 0.0)
        return self._last

    def ended(self, num_calls: int, record: OnRecord | None) -> None:
        """So many calls, on both clocks."""
        if record is not None:
            self._tell(num_calls, record)
        self._num_told = 0
        own_s, call_s, delay_s = self.own_s, self.call_s, self.shape.delay_s
        self.calls_left -= num_calls
        for _ in range(num_calls - 1):
            own_s = own_s + call_s + delay_s
        if num_calls:
            own_s = own_s + call_s + (delay_s if self.calls_left else self.after_s)
        self.own_s, self.left_s, self.call_id = own_s, call_s, ""

    def tell(self, record: OnRecord | None) -> None:
        """All calls that have ended by now, and were not told; with None they are not told at all."""
        if self.call_id and self.group is not None:
            num_ended = self.group.num_ended(self.call_id)
            if record is not None:
                self._tell(num_ended, record)
            self._num_told = num_ended

    def _tell(self, num_ended: int, record: OnRecord) -> None:
        if num_ended > self._num_told:
            record(EndedCalls(self.role, self.shape, self.own_s, self.call_s, self._num_told, num_ended))

    def withdraw(self, is_kept: bool, record: OnRecord | None) -> None:
        """From its group. `is_kept`: what of a rollout's call is done is; a training call starts anew."""
        if not self.call_id or self.group is None:
            return
        is_kept = is_kept and self.role is ROLLOUT
        num_ended, ran_s = self.group.withdraw(self.call_id, is_kept)
        left_s = self.left_s
        self.ended(num_ended, record)
        self.left_s = left_s - ran_s if is_kept else left_s
        self.is_withdrawn = True

    def stop(self, own_s: float) -> None:
        """What it has not finished is lost; its own clock goes back."""
        self.withdraw(False, None)
        self.group, self.is_in_step, self.is_withdrawn = None, False, False
        self.own_s = min(self.own_s, own_s)

    def step_ended(self) -> None:
        self.is_in_step = False
        self.steps_done += 1
        self.ends_s.append(self.own_s)

    def step_lost(self) -> None:
        """The latest one has to be done again."""
        self.steps_done -= 1
        if self.ends_s:
            self.ends_s.pop()

    def own_end_s(self, step: int) -> float:
        """On the own clock: the end of one of the latest steps; 0 for a step before the first."""
        index = step - (self.steps_done - len(self.ends_s))
        return self.ends_s[index] if 0 <= index < len(self.ends_s) else 0.0
