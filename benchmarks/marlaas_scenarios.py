"""The settings that are compared: models, delays, numbers of tasks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.marlaas_run import RunResult, run_settings, run_system
from benchmarks.marlaas_systems import DISAGGREGATED, System
from benchmarks.marlaas_tasks import SMOLLM2_KINDS, TINY_KINDS, Kind, make_tasks
from plait.config.task import TaskSettings
from plait.models.catalogue import find
from plait.models.tiny import make_tiny_model

SMOLLM2 = "smollm2-135m-instruct"


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    model: Callable[[Path], Path]
    """Given a folder to write into, the model's folder."""
    kinds: Sequence[Kind]
    num_tasks: Sequence[int]
    steps: int
    max_new_tokens: int
    has_delays: bool = True
    num_corrections: int = 1
    """Of the delays, after runs with the first guess."""
    num_threads: int = 1
    """Of all workers together. A second one makes the tiny model slower."""


AGENTIC = Scenario("agentic", make_tiny_model, TINY_KINDS, (1, 2, 4, 8, 16, 32), steps=5, max_new_tokens=64)
"""Slow environments on a tiny model: the full grid."""
COMPUTE_BOUND = replace(AGENTIC, name="compute_bound", num_tasks=(8,), has_delays=False)
"""Environments that answer at once: nothing to overlap but training with decoding."""
REAL_MODEL = Scenario(
    "real_model", lambda folder: find(SMOLLM2), SMOLLM2_KINDS, (4,), steps=3, max_new_tokens=16, num_corrections=0, num_threads=2
)

FULL = (AGENTIC, COMPUTE_BOUND, REAL_MODEL)
QUICK = (replace(AGENTIC, num_tasks=(1, 4), steps=2, num_corrections=0),)


class Bench:
    """A scenario with its model at hand and its delays chosen."""

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self.scenario = scenario
        self.model_path = scenario.model(folder / "model")
        self.delays_s: Mapping[str, float] = {}

    def tasks(self, num_tasks: int, delays_s: Mapping[str, float] | None = None) -> tuple[TaskSettings, ...]:
        """The first tasks, by default with the scenario's delays."""
        s = self.scenario
        return make_tasks(s.kinds, num_tasks, s.steps, s.max_new_tokens, self.delays_s if delays_s is None else delays_s)

    def run(self, system: System, tasks: Sequence[TaskSettings]) -> RunResult:
        num_threads = self.scenario.num_threads
        return run_system(system, run_settings(system, tasks, self.model_path, num_threads), lend_threads=num_threads > 1)

    def run_each_alone(self, delays_s: Mapping[str, float]) -> tuple[Sequence[TaskSettings], RunResult]:
        """One task of each kind that there will be, one after another, with a rollout worker of its own."""
        tasks = self.tasks(self.num_kinds, delays_s)
        return tasks, self.run(DISAGGREGATED, tasks)

    @property
    def num_kinds(self) -> int:
        return min(len(self.scenario.kinds), max(self.scenario.num_tasks))
