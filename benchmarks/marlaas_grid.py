"""Runs the grid: every system on every number of tasks, and some tasks alone in a run of their own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.marlaas_calibration import TARGET_UTILISATION, calibrate, lone_utilisation
from benchmarks.marlaas_digests import compare, merge
from benchmarks.marlaas_measures import Digests, digests_of, measure
from benchmarks.marlaas_scenarios import Bench
from benchmarks.marlaas_systems import ALONE_SYSTEMS, DISAGGREGATED, PLAIT, SEQUENTIAL, SYSTEMS, System

Say = Callable[[str], None]
ONE_AT_A_TIME = (SEQUENTIAL, DISAGGREGATED)


@dataclass(slots=True)
class Grid:
    bench: Bench
    say: Say
    num_lone_runs: int
    """So many of the first tasks are trained in runs of their own."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    digests: dict[bool, dict[str, Digests]] = field(default_factory=lambda: {True: {}, False: {}})
    """Of tasks that were trained together, by layout (one process or two) and run: a trainer's bits depend on its threads."""
    alone: dict[bool, list[Digests]] = field(default_factory=lambda: {True: [], False: []})
    all_invariant: bool = True

    def run(self) -> None:
        scenario = self.bench.scenario
        if scenario.has_delays:
            self._calibrate()
        for num_tasks in scenario.num_tasks:
            for system in SYSTEMS if num_tasks > 1 else ALONE_SYSTEMS:
                self._measure(num_tasks, system)
        for task in self.bench.tasks(max(scenario.num_tasks), delays_s={})[: self.num_lone_runs]:
            result = self.bench.run(PLAIT, [task])
            self.alone[PLAIT.is_shared].append(digests_of(result))
            self.say(f"{scenario.name}: {task.name} alone in a run of its own, for its adapters")

    def _calibrate(self) -> None:
        scenario = self.bench.scenario
        self.bench.delays_s = calibrate(scenario.kinds[: self.bench.num_kinds], self.bench.run_each_alone, scenario.num_corrections)
        chosen = ", ".join(f"{kind} {mean_s:.2f} s" for kind, mean_s in self.bench.delays_s.items())
        self.say(f"{scenario.name}: mean delays for {TARGET_UTILISATION:.1%} of a rollout worker alone: {chosen}")

    def _measure(self, num_tasks: int, system: System) -> None:
        scenario, tasks = self.bench.scenario, self.bench.tasks(num_tasks)
        result = self.bench.run(system, tasks)
        row = {"scenario": scenario.name, "tasks": num_tasks, "system": system.name, **measure(result)}
        row["mean_delays_s"] = dict(self.bench.delays_s)
        if system is DISAGGREGATED:
            row["lone_rollout_utilisation"] = lone_utilisation(result)
        self.rows.append(row)
        self.all_invariant = self.all_invariant and result.is_batch_invariant
        if system in ONE_AT_A_TIME:
            self.alone[system.is_shared].append(digests_of(result))
        else:
            self.digests[system.is_shared][f"{scenario.name}, {num_tasks} tasks, {system.name}"] = digests_of(result)
        speed = f"{row['end_to_end_s']:7.1f} s, {row['steps_per_hour']:7.0f} steps/h, decoding {row['rollout_utilisation']:4.0%}"
        self.say(f"{scenario.name}: {num_tasks:2d} tasks, {system.name:26s} {speed}")

    def compare_digests(self) -> tuple[int, list[str]]:
        """How many adapters were compared with those of tasks trained alone, and what is wrong."""
        num_compared, faults = 0, []
        for is_shared, together in self.digests.items():
            alone, disagreements = merge(self.alone[is_shared])
            num, differences = compare(alone, together)
            num_compared += num
            faults += disagreements + differences
        return num_compared, faults

    def row(self, num_tasks: int, system: str) -> Mapping[str, Any]:
        return next(row for row in self.rows if row["tasks"] == num_tasks and row["system"] == system)
