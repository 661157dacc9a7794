"""An RL job as a simulated cluster sees it: two parts that take turns, each of function calls.

A step is a rollout and a training step. Calls of a part run one after another, `delay_s` apart (tools, environments), and the part
is over `after_s` after the last. A job that is synchronous rolls a step out once the step before is trained; one of staleness s,
once step - 1 - s is.
"""

import math

import msgspec

from plait.placement.job import DEFAULT_SLO, Role
from plait.types.errors import ConfigError


class PartShape(msgspec.Struct, frozen=True):
    """`call_s`: all calls of a step together, on `num_devices` that do nothing else, without delays."""

    num_devices: int
    call_s: float
    num_calls: int = 1
    delay_s: float = 0.0
    jitter: float = 0.0
    """Standard deviation of the natural logarithm of what a step's calls take."""
    drift: float = 0.0
    """The last step takes so much longer than the first one, as a share; it may be negative."""
    bytes_per_device: int = 0
    """Weights, moments, caches: what must be on a device while a call runs."""
    after_s: float = 0.0
    """From the end of the last call until the other part may begin: tools and environments, or what a step is recorded with."""
    after_jitter: float = 0.0
    """Of it, as `jitter`."""

    @property
    def step_s(self) -> float:
        """Usual time from the start of the first call until all is over, alone."""
        return self.busy_s + (self.num_calls - 1) * self.delay_s + self.after_s * math.exp(self.after_jitter**2 / 2)

    @property
    def busy_s(self) -> float:
        """Of it, usually, that calls take."""
        return self.call_s * (1 + self.drift / 2) * math.exp(self.jitter**2 / 2)


class JobShape(msgspec.Struct, frozen=True):
    """`kind`: jobs of one kind are known to have alike demand. `model`: a name in data/models.toml."""

    job_id: str
    kind: str
    model: str
    arrival_s: float
    steps: int
    rollout: PartShape
    train: PartShape
    staleness: int = 0
    is_colocated: bool = False
    """Both parts on the same devices, in turns."""
    slo: float = DEFAULT_SLO
    fill: float = 0.8
    """Mean tokens a second while a rollout call runs, over those of a full batch: the tail of a rollout has few rows."""

    def __post_init__(self) -> None:
        for role, part in self.parts.items():
            numbers = (part.call_s, part.delay_s, part.jitter, part.bytes_per_device, part.after_s, part.after_jitter)
            if part.num_devices < 1 or part.num_calls < 1 or not part.call_s > 0 or min(numbers) < 0 or part.drift <= -1:
                raise ConfigError(
                    f"job {self.job_id}: {role.value} is {part}.", "Give a device, a call and some time; drift above -1."
                )
        if self.steps < 1 or self.staleness < 0 or self.arrival_s < 0 or not 0 < self.fill <= 1:
            raise ConfigError(
                f"job {self.job_id}: steps {self.steps}, staleness {self.staleness}, arrival_s {self.arrival_s}, fill {self.fill}.",
                "Give 1 step or more, no negative number, and a fill above 0, at most 1.",
            )
        if self.is_colocated and (self.rollout.num_devices != self.train.num_devices or self.staleness):
            raise ConfigError(
                f"job {self.job_id} is colocated, with staleness {self.staleness} and "
                f"{self.rollout.num_devices} and {self.train.num_devices} devices.",
                "Give both parts the same devices, and staleness 0: they take turns.",
            )

    @property
    def parts(self) -> dict[Role, PartShape]:
        return {Role.ROLLOUT: self.rollout, Role.TRAIN: self.train}

    @property
    def num_devices(self) -> int:
        return self.rollout.num_devices + (0 if self.is_colocated else self.train.num_devices)

    @property
    def period_s(self) -> float:
        """Usual time of a step, alone and without switches."""
        rollout_s, train_s = self.rollout.step_s, self.train.step_s
        if not self.staleness:
            return rollout_s + train_s
        return max(rollout_s, train_s)

    @property
    def alone_s(self) -> float:
        return self.steps * self.period_s + (self.train.step_s if self.staleness else 0.0)

    @property
    def bubble(self) -> float:
        """Share of a step in which the training devices idle when the job has them alone."""
        return 1 - self.train.busy_s / self.period_s
