"""Loads of one worker group: jobs, and what each asks of it. The same seed gives the same asks, in whatever order they are served.

- *Single calls*: a job asks for a call, and for the next one when it has had the answer and thought (tools, rewards, rollouts that
  run elsewhere).
- *Chained*: it thinks between training steps only.
- *Pipelined*: the same, but it asks for all calls of a training step at once, as clients of the Tinker API do.
- *Bursts*: some steps come one after another, their calls in quick succession, whether or not those before have ended; then none
  for long. *Periodic*: by the clock, and calls evenly; jobs are out of phase.
- A step is a few forward_backward calls of spread lengths, a short optim_step, a weight sync; base models differ in size, and with
  it in the time of all that is done with them. A setup (offload and load) takes `setup_share` of a mean forward_backward.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

SINGLE, CHAINED, PIPELINED, BURSTS, PERIODIC = "single calls", "chained", "pipelined", "bursts", "periodic"
CLOSED = (SINGLE, CHAINED, PIPELINED)
KINDS = (*CLOSED, BURSTS, PERIODIC)
MODEL_SIZES = (1.0, 0.4, 2.5, 0.15, 1.0, 6.0)
"""Speeds of the models, by turns; 1: a forward_backward of `MEAN_TOKENS` takes `MEAN_S`."""
MEAN_TOKENS = 8192
MEAN_S = 2.0
SPREAD = 0.6
"""Of the logarithm of a call's tokens."""
STEPS_AT_ONCE = 3
"""In a burst."""
NOISE = 0.1
"""Of the logarithm of a call's time."""


@dataclass(frozen=True, slots=True)
class Ask:
    function: str
    size_tokens: int
    service_s: float


@dataclass(frozen=True, slots=True)
class Batch:
    """Calls that arrive at once: `after_s` the answers to the batch before it or, in an open load, after that arrived."""

    after_s: float
    asks: tuple[Ask, ...]


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    deployment: str
    batches: tuple[Batch, ...]

    @property
    def service_s(self) -> float:
        return sum(ask.service_s for batch in self.batches for ask in batch.asks)


@dataclass(frozen=True, slots=True)
class Load:
    """`utilisation`: the share of time that the calls would take without waiting: alone (closed), or with a setup for each batch
    (open)."""

    kind: str
    num_deployments: int
    models_each: int
    """Jobs of a deployment: LoRA adapters of one base model."""
    setup_share: float
    utilisation: float

    @property
    def name(self) -> str:
        return f"{self.kind}, {self.num_deployments} x {self.models_each}, setup {self.setup_share:g}, {self.utilisation:.0%}"

    @property
    def num_jobs(self) -> int:
        return self.num_deployments * self.models_each

    @property
    def is_closed(self) -> bool:
        return self.kind in CLOSED

    def deployment(self, number: int) -> str:
        """Of a job."""
        return f"base-{number % self.num_deployments}"

    def setup_s(self, number: int) -> float:
        """Offload and load together, of a job's deployment."""
        return self.setup_share * MEAN_S * self._size(number)

    def _size(self, number: int) -> float:
        return MODEL_SIZES[number % self.num_deployments % len(MODEL_SIZES)]

    def jobs(self, seed: int, num_steps: int) -> list[Job]:
        """`num_steps` of the whole load, shared so that all jobs end about together."""
        paces = [self._cycle_s(number) for number in range(self.num_jobs)]
        rate = sum(1 / pace for pace in paces)
        return [self._job(seed, number, max(round(num_steps / pace / rate), 4)) for number, pace in enumerate(paces)]

    def _cycle_s(self, number: int) -> float:
        """Of a job's step, with its thinking: each job takes an equal share of the utilisation."""
        work_s = _MEAN_STEP_S * self._size(number) + (0.0 if self.is_closed else self.setup_s(number))
        return work_s * self.num_jobs / self.utilisation

    def _job(self, seed: int, number: int, num_steps: int) -> Job:
        generator = random.Random(f"{self.name} {seed} {number}")
        cycle_s = self._cycle_s(number)
        first_s = generator.uniform(0, cycle_s)
        batches = [batch for step in range(num_steps) for batch in self._step(generator, number, cycle_s, step)]
        batches[0] = Batch(first_s, batches[0].asks)
        return Job(f"job-{number}", self.deployment(number), tuple(batches))

    def _step(self, generator: random.Random, number: int, cycle_s: float, step: int) -> Iterator[Batch]:
        asks = _asks(generator, self._size(number))
        think_s = max(cycle_s - sum(ask.service_s for ask in asks), 0.0)
        call_s = MEAN_S * self._size(number)
        burst_s = 0.0 if step % STEPS_AT_ONCE else STEPS_AT_ONCE * (cycle_s - 2 * call_s)
        if self.kind == PIPELINED:
            yield Batch(think_s * generator.uniform(0.5, 1.5), asks)
            return
        for place, ask in enumerate(asks):
            gap_s = {
                SINGLE: think_s / len(asks) * generator.uniform(0.5, 1.5),
                CHAINED: 0.0 if place else think_s * generator.uniform(0.5, 1.5),
                BURSTS: generator.expovariate(2 / call_s) if place else burst_s * generator.uniform(0.5, 1.5),
                PERIODIC: call_s if place else max(cycle_s - call_s * (len(asks) - 1), 0.0) * generator.uniform(0.95, 1.05),
            }[self.kind]
            yield Batch(gap_s, (ask,))


def _asks(generator: random.Random, model_size: float) -> tuple[Ask, ...]:
    sizes = [
        max(round(MEAN_TOKENS * generator.lognormvariate(-(SPREAD**2) / 2, SPREAD)), 1) for _ in range(generator.randint(2, 6))
    ]
    asks = [("forward_backward", size, MEAN_S * size / MEAN_TOKENS) for size in sizes]
    asks += [("optim_step", 0, MEAN_S / 10), ("weight_sync", 0, MEAN_S / 4)]
    return tuple(Ask(name, size, model_size * time_s * generator.lognormvariate(0, NOISE)) for name, size, time_s in asks)


_MEAN_STEP_S = MEAN_S * (4 + 1 / 10 + 1 / 4)

SHAPES = ((2, 1), (6, 1), (3, 6), (12, 2))
FULL = tuple(
    Load(kind, *shape, setup_share, utilisation)
    for kind, shape, setup_share, utilisation in product(KINDS, SHAPES, (0.1, 1.5), (0.6, 0.8, 0.95))
)
QUICK = tuple(load for load in FULL if (load.num_deployments, load.utilisation) == (3, 0.8))
