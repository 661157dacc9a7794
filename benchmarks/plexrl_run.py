"""Runs the jobs of a scenario on the workers of a system, for a while, and says what happened meanwhile.

The clock starts when every job has taken `NUM_WARM_STEPS`; it stops `measured_s` later, and then the jobs are stopped.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.plexrl_jobs import Job, settings_of
from benchmarks.plexrl_systems import RecordingGroups, System, make_groups
from plait.cluster.groups.factory import grouped
from plait.cluster.groups.worker_groups import WorkerGroups
from plait.config.load import effective_toml
from plait.config.run import RunSettings
from plait.environments.pool import EnvironmentPool
from plait.models.tokenizer import Tokenizer
from plait.observe.events import AnyEvent, StepCommitted
from plait.observe.log import EventLog
from plait.placement.demand_trace import FunctionRecord
from plait.state.rundir import RunDirectory
from plait.tasks.driver import RunDriver
from plait.tasks.own_compute import OwnCompute

NUM_WARM_STEPS = 2


@dataclass(slots=True)
class GroupUse:
    """Of one group while the clock ran."""

    num_switches: int
    num_calls: int
    setup_s: float
    waited_s: float
    busy_s: float
    """A call ran, setup included."""
    device_bytes: int
    total_bytes: int
    """What all of its deployments take."""
    num_prefetches: int
    """Of the switches, those beside a call, outside of `setup_s`."""
    prefetch_s: float


@dataclass(slots=True)
class Outcome:
    start_s: float = 0.0
    """Seconds since the epoch, as in events."""
    end_s: float = 0.0
    events: dict[str, list[AnyEvent]] = field(default_factory=dict)
    """All, by job."""
    groups: dict[str, GroupUse] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes on the device by deployment."""
    records: dict[str, list[FunctionRecord]] = field(default_factory=dict)
    """Calls of each job in groups, from its start on, in its own time."""
    loads_s: dict[str, list[float]] = field(default_factory=dict)
    """By deployment that came to the device while it was wanted there, from its start on,"""
    offloads_s: dict[str, list[float]] = field(default_factory=dict)
    """and by deployment that left it then."""


async def run_system(
    system: System, jobs: Sequence[Job], sizes: Mapping[str, int], measured_s: float, folder: Path
) -> list[Outcome]:
    """All jobs at once, or each alone. Raises what ended a job before its time."""
    parts = [[job] for job in jobs] if system.is_alone else [list(jobs)]
    outcomes = []
    for number, part in enumerate(parts):
        place = folder / f"{number}"
        place.mkdir()
        outcomes.append(await _run(system, part, sizes, measured_s, folder.parent, place))
    return outcomes


async def _run(
    system: System, jobs: Sequence[Job], sizes: Mapping[str, int], measured_s: float, models: Path, folder: Path
) -> Outcome:
    settings = {job.name: settings_of(job, models, system.is_colocated) for job in jobs}
    tasks = {name: one.tasks[0].environment for name, one in settings.items()}
    groups = make_groups(system, list(settings), sizes, folder) if system.groups is not None else None
    environments = await EnvironmentPool.start(tasks, 1)
    try:
        stopwatch = _Stopwatch(list(settings), groups)
        runs = [asyncio.create_task(_run_job(one, groups, environments, stopwatch, folder)) for one in settings.values()]
        clock = asyncio.create_task(stopwatch.measure(measured_s))
        await asyncio.wait([*runs, clock], return_when=asyncio.FIRST_COMPLETED)
        for task in [*runs, clock]:
            task.cancel()
        results = await asyncio.gather(*runs, clock, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result
        if not stopwatch.outcome.end_s:
            raise RuntimeError(f"{system.name}: a job has ended before its time")
        return stopwatch.outcome
    finally:
        await environments.close()


async def _run_job(
    settings: RunSettings, groups: WorkerGroups | None, environments: EnvironmentPool, stopwatch: "_Stopwatch", folder: Path
) -> None:
    directory = RunDirectory.create(folder, settings.name, effective_toml(settings))
    make_workers = None if groups is None else grouped(groups, settings.name)
    with EventLog(directory.events) as log:
        compute = OwnCompute(settings, settings.model.path, make_workers=make_workers)
        tokenizer = Tokenizer.load(Path(settings.model.path))
        driver = RunDriver(settings, directory, compute, tokenizer, environments, log)
        driver.listeners.append(lambda event: stopwatch.on_event(settings.name, event))
        await driver.run()


class _Stopwatch:
    def __init__(self, jobs: Sequence[str], groups: RecordingGroups | None) -> None:
        self.outcome = Outcome(events={job: [] for job in jobs}, records=groups.records if groups is not None else {})
        self._groups = groups.groups if groups is not None else {}
        self._setups = groups.setups if groups is not None else {}
        self._cold = set(jobs)
        self._is_warm = asyncio.Event()

    def on_event(self, job: str, event: AnyEvent) -> None:
        self.outcome.events[job].append(event)
        if isinstance(event, StepCommitted) and event.step >= NUM_WARM_STEPS:
            self._cold.discard(job)
            if not self._cold:
                self._is_warm.set()

    async def measure(self, measured_s: float) -> None:
        await self._is_warm.wait()
        self.outcome.start_s = time.time()
        before = self._uses()
        await asyncio.sleep(measured_s)
        self.outcome.end_s = time.time()
        self.outcome.groups = {name: _since(before[name], after) for name, after in self._uses().items()}
        for group in self._groups.values():
            self.outcome.sizes |= group.dispatcher.residents.sizes
        for setups in self._setups.values():
            self.outcome.loads_s |= setups.loads_s
            self.outcome.offloads_s |= setups.offloads_s

    def _uses(self) -> dict[str, GroupUse]:
        """So far."""
        found = {}
        for name, group in self._groups.items():
            counters, totals = group.dispatcher.counters, group.dispatcher.queue.totals
            found[name] = GroupUse(
                counters.num_switches, counters.num_calls, counters.setup_s, counters.waited_s,
                totals.service_s + totals.overhead_s, group.settings.device_bytes,
                sum(group.dispatcher.residents.sizes.values()), counters.num_prefetches, counters.prefetch_s,
            )  # fmt: skip
        return found


def _since(before: GroupUse, after: GroupUse) -> GroupUse:
    return GroupUse(
        after.num_switches - before.num_switches, after.num_calls - before.num_calls, after.setup_s - before.setup_s,
        after.waited_s - before.waited_s, after.busy_s - before.busy_s, after.device_bytes, after.total_bytes,
        after.num_prefetches - before.num_prefetches, after.prefetch_s - before.prefetch_s,
    )  # fmt: skip
