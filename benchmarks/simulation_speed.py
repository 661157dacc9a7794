"""How fast simulations are, and what memory long ones take. Each runs in a process of its own, on one core.

Events are what a simulation of each thing by itself would have on its clock: the start and the end of every function call; every
decode step of an engine, and the start and the end of every chunk. What nobody can get in between of is one event on the clock
here: calls with the same result to the last bit (tests/simulation/test_stretches.py), steps at costs that grow evenly from the
first of them to the last. `clock_events` are those of the clock.
"""

import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from benchmarks.common import headline
from benchmarks.simulation_found import Found, Row
from plait.simulation import task_systems
from plait.simulation.cluster import SimulatedCluster
from plait.simulation.job_results import costs_of
from plait.simulation.job_scenario import JobScenario
from plait.simulation.job_workload import cluster_of, jobs_of
from plait.simulation.lasting import lasting
from plait.simulation.load_scenario import load_scenario
from plait.simulation.scenario import TaskScenario
from plait.simulation.task_simulation import TaskSimulation

EVENTS_GOAL = 500_000
"""A second (issue 6)."""
DAYS_GOAL = 3.0
"""A minute: a month in ten minutes."""
MONTH_DAYS, QUICK_DAYS = 30, 2
JOBS = "plexrl-2048"
JOB_SYSTEMS = ("isolated", "pack", "spread + backfill")
TASK_CASES = (("seer-moonlight", "context"), ("marlaas", "plait"))


@dataclass(frozen=True, slots=True)
class Run:
    """What a simulation did; `end_s` is of its clock."""

    end_s: float
    num_events: int
    num_clock_events: int
    counts: Mapping[str, int]


def run_speed(is_quick: bool) -> Found:
    days = QUICK_DAYS if is_quick else MONTH_DAYS
    rows = [_apart(run_jobs, JOBS, system, days) for system in JOB_SYSTEMS]
    rows += [_apart(run_tasks, name, system, is_quick) for name, system in TASK_CASES]
    return Found(rows, _headlines(rows))


def run_jobs(name: str, system: str, days: int) -> Run:
    """As many jobs as fill the cluster for so many days; until all have ended."""
    scenario = load_scenario(name)
    assert isinstance(scenario, JobScenario)
    scenario = lasting(scenario.model_copy(update={"days": days}))
    chosen = next(one for one in scenario.systems if one.name == system)
    simulated = SimulatedCluster(cluster_of(scenario), chosen.policy, chosen.order, 0, costs_of=costs_of(scenario))
    simulated.add(jobs_of(scenario, chosen, 0, False))
    found = simulated.run()
    counts = {"jobs": found.num_ended, "calls": found.num_calls, "switches": found.num_switches, "decisions": found.num_decisions}
    return Run(found.end_s, 2 * found.num_calls, clock_events(simulated.env), counts)


def run_tasks(name: str, system: str, is_quick: bool) -> Run:
    scenario = load_scenario(name)
    assert isinstance(scenario, TaskScenario)
    chosen = next(one for one in scenario.systems if one.name == system)
    simulation = TaskSimulation(scenario, chosen, 0)
    shapes = [task_systems.shape(task, chosen, number, is_quick) for task in scenario.tasks for number in range(task.count)]
    found = simulation.run(shapes)
    engines, num_chunks = simulation.rollout.engines.values(), simulation.rollout.dispatcher.num_chunks
    num_steps = sum(engine.num_steps for engine in engines)
    counts = {"chunks": num_chunks, "engine_steps": num_steps, "tokens": sum(engine.num_decoded_tokens for engine in engines)}
    return Run(found.end_s, num_steps + 2 * num_chunks, clock_events(simulation.env), counts)


def clock_events(env: Any) -> int:
    """simpy numbers them."""
    return int(next(env._eid))


def _apart(run: Callable[..., Run], name: str, system: str, extent: int) -> Row:
    """In a fresh process, whose peak of memory is its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, run, name, system, extent).result()


def measure(run: Callable[..., Run], name: str, system: str, extent: int) -> Row:
    before_bytes, start_s = peak_bytes(), time.process_time()
    found = run(name, system, extent)
    seconds = time.process_time() - start_s
    return {
        "kind": "speed", "case": name, "system": system, "days": found.end_s / 86_400, **found.counts, "events": found.num_events,
        "clock_events": found.num_clock_events, "seconds": seconds, "events_per_s": found.num_events / seconds,
        "clock_events_per_s": found.num_clock_events / seconds, "days_per_minute": found.end_s / 86_400 / (seconds / 60),
        "peak_bytes": peak_bytes(), "grown_bytes": peak_bytes() - before_bytes,
    }  # fmt: skip


def peak_bytes() -> int:
    """Resident, of this process, so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _headlines(rows: list[Row]) -> dict[str, dict[str, Any]]:
    found = {f"{row['case']}, {row['system']}": headline(row["events_per_s"], EVENTS_GOAL, "events/s") for row in rows}
    for row in rows:
        if row["case"] == JOBS:
            what = f"{row['case']}, {row['system']}: simulated days a minute"
            found[what] = headline(row["days_per_minute"], DAYS_GOAL, "days", "a month in ten minutes")
    return found
