"""What each strand of Plait adds on top of the others: all eight combinations on one workload.

- Multi-task sharing (MARLaaS): a group of tasks has one set of devices, or each task has its own.
- Divided rollout, context and drafts (Seer): or whole groups pinned to engines that preempt.
- Function-level multiplexing (PlexRL): jobs share worker groups (packed, in HRRS order), or each has its own.

In two levels. The scenario `three-strands` gives, for one group of tasks with and without the first two, how long a step takes and
for how much of it rollout and training devices work. Twelve such groups then are jobs of such demand on one cluster: a job a group
where tasks share, else a job a task. A job of several tasks rolls out while it trains; one of a single task does not.
"""

import random
from collections.abc import Iterator
from itertools import product
from typing import Any

import msgspec

from benchmarks import simulation_changes as changes
from benchmarks.common import headline
from benchmarks.simulation_changes import Change, smaller
from benchmarks.simulation_found import Found, Row, rows_of
from plait.simulation.cluster import simulate_jobs
from plait.simulation.cluster_shape import ClusterShape
from plait.simulation.hardware import accelerator
from plait.simulation.job_shape import JobShape, PartShape
from plait.simulation.load_scenario import load_scenario
from plait.simulation.model_shapes import model_shape
from plait.simulation.results import SystemResult
from plait.simulation.scenario import TaskScenario
from plait.simulation.simulate import simulate

NAME = "three-strands"
NUM_GROUPS = 12
JOB_STEPS = 40
NUM_KINDS = 3
"""Groups of one kind have alike demand, so placement knows it once the first has run."""
SPREAD = 0.3
"""Sigma of the factor by which times differ between kinds."""
TASK_EVERY_S = 600.0
CLUSTER_SHARE = 0.125
"""Of the devices that all tasks would have, each with its own."""
JITTER = 0.1
NUM_CALLS = 8
CACHE_BYTES_PER_DEVICE = 20 * 10**9
SYSTEM_OF = {(False, False): "neither", (True, False): "sharing", (False, True): "divided", (True, True): "sharing + divided"}
"""(Tasks share, rollout is divided)"""


LARGER_CLUSTER = "a cluster twice as large"
OTHERS: dict[str, Change] = {
    "verifiers that answer at once": changes.with_tasks(lambda task: {"delay_s": 0.0}),
    "verifiers that take 60 s": changes.with_tasks(lambda task: {"delay_s": 60.0}),
    "a cache of all that weights leave": changes.with_rollout(cache_tokens=0),
    "half the cache": changes.with_rollout(cache_tokens=75_000),
    "four times as many prompts a step": changes.with_tasks(lambda task: {"groups_per_step": 4 * task.groups_per_step}),
    "lengths with a sigma of 0.5": changes.with_lengths(sigma=0.5),
    LARGER_CLUSTER: lambda scenario: scenario,
}


class Demand(msgspec.Struct, frozen=True):
    """Of one job's step, seconds."""

    tasks_per_job: int
    period_s: float
    rollout_s: float
    """In which rollout devices work."""
    train_s: float


def run_strands(is_quick: bool) -> Found:
    scenario = load_scenario(NAME)
    assert isinstance(scenario, TaskScenario)
    if is_quick:
        scenario = smaller(2)(scenario)  # type: ignore[assignment]
    result = simulate(scenario, NAME)
    systems = {system.name: system for system in result.systems}
    num_groups = NUM_GROUPS // 3 if is_quick else NUM_GROUPS
    rows = list(_combinations(scenario, systems, num_groups))
    others = [] if is_quick else list(_sensitivity(scenario, num_groups))
    return Found([*rows, *rows_of(result), *_assumptions(num_groups), *others], _headlines(rows))


def demand(scenario: TaskScenario, system: SystemResult, is_shared: bool) -> Demand:
    task = scenario.tasks[0]
    num_periods = task.steps if is_shared else task.steps * task.count
    period_s = system.end_s / num_periods
    shares = [system.figures["rollout_utilisation"] or 0.0, system.figures["training_utilisation"] or 0.0]
    return Demand(task.count if is_shared else 1, period_s, *(share * period_s for share in shares))


def _sensitivity(scenario: TaskScenario, num_groups: int) -> Iterator[Row]:
    """What each strand adds under other assumptions, one at a time."""
    for text, change in OTHERS.items():
        other = change(scenario)
        assert isinstance(other, TaskScenario)
        share = 2 * CLUSTER_SHARE if text == LARGER_CLUSTER else CLUSTER_SHARE
        systems = {system.name: system for system in simulate(other, NAME).systems}
        rows = list(_combinations(other, systems, num_groups, share))
        gains = {(row["sharing"], row["seer"], row["multiplexing"]): row["gain"] for row in rows}
        yield {"kind": "strands_under", "assumption": text, **_added(gains)}


def _added(gains: dict[tuple[bool, bool, bool], float]) -> dict[str, float]:
    """Of each strand alone, and on top of both others; of all three, and of the best combination."""
    every, found = (True, True, True), {}
    for place, name in enumerate(("sharing", "seer", "multiplexing")):
        alone = (place == 0, place == 1, place == 2)
        without = (place != 0, place != 1, place != 2)
        found |= {f"{name}_alone": gains[alone], f"{name}_on_top": _six(gains[every] / gains[without])}
    return found | {"all": gains[every], "best": max(gains.values())}


def _combinations(
    scenario: TaskScenario, systems: dict[str, SystemResult], num_groups: int, cluster_share: float = CLUSTER_SHARE
) -> Iterator[Row]:
    base = 0.0
    for is_multiplexed, is_divided, is_shared in product((False, True), repeat=3):
        found = demand(scenario, systems[SYSTEM_OF[is_shared, is_divided]], is_shared)
        jobs = list(_jobs(scenario, found, num_groups))
        cluster = ClusterShape(accelerator(scenario.cluster.accelerator), _devices(scenario, num_groups, cluster_share))
        policy, order = ("pack", "hrrs") if is_multiplexed else ("isolated", "fifo")
        result = simulate_jobs(cluster, jobs, policy, order)
        per_step = result.device_hours / (result.num_steps * found.tasks_per_job)
        base = base or per_step
        yield {
            "kind": "strands", "sharing": is_shared, "seer": is_divided, "multiplexing": is_multiplexed,
            "device_hours_per_step": _six(per_step), "gain": _six(base / per_step), "busy_share": _six(result.busy_share),
            "slowdown": _six(result.slowdowns.mean), "step_s": _six(found.period_s),
            "rollout_share": _six(found.rollout_s / found.period_s),
            "train_share": _six(found.train_s / found.period_s), "ended": result.num_ended, "jobs": result.num_jobs,
        }  # fmt: skip


def _jobs(scenario: TaskScenario, found: Demand, num_groups: int) -> Iterator[JobShape]:
    per_group = scenario.tasks[0].count // found.tasks_per_job
    for group in range(num_groups):
        kind = f"kind-{group % NUM_KINDS}"
        factor = random.Random(f"strands/{kind}").lognormvariate(0.0, SPREAD)
        for number in range(per_group):
            arrival_s = TASK_EVERY_S * (group * scenario.tasks[0].count + number * found.tasks_per_job)
            yield _job(scenario, found, f"job-{group:02}-{number}", kind, factor, arrival_s)


def _job(scenario: TaskScenario, found: Demand, job_id: str, kind: str, factor: float, arrival_s: float) -> JobShape:
    is_async = found.tasks_per_job > 1
    rollout_devices = scenario.cluster.devices - scenario.training.devices
    whole_s = found.period_s if is_async else found.period_s - found.train_s
    idle_s = max(0.0, whole_s - found.rollout_s) * factor / (NUM_CALLS - 1)
    weights = model_shape(scenario.model.name).weight_bytes
    rollout_bytes = int(weights / scenario.rollout.devices_per_engine) + CACHE_BYTES_PER_DEVICE
    train_bytes = int(weights / scenario.training.devices) + CACHE_BYTES_PER_DEVICE
    rollout = PartShape(rollout_devices, found.rollout_s * factor, NUM_CALLS, idle_s, JITTER, 0.0, rollout_bytes)
    train = PartShape(scenario.training.devices, found.train_s * factor, 4, 0.0, JITTER, 0.0, train_bytes)
    return JobShape(job_id, kind, scenario.model.name, arrival_s, JOB_STEPS, rollout, train, int(is_async))


def _devices(scenario: TaskScenario, num_groups: int, cluster_share: float) -> int:
    return int(cluster_share * num_groups * scenario.tasks[0].count) * scenario.cluster.devices


def _assumptions(num_groups: int) -> Iterator[Row]:
    for text in (
        f"{num_groups} groups of tasks of {NUM_KINDS} kinds, whose times differ by a factor with a sigma of {SPREAD}; "
        f"{JOB_STEPS} steps a task, jitter {JITTER:.0%}; a task comes every {TASK_EVERY_S:.0f} s.",
        f"The cluster has {CLUSTER_SHARE:.1%} of the devices that all tasks would have, each with its own. "
        "Where every job fits alone, nobody has to share, and multiplexing changes nothing.",
        "A job's rollout has eight calls with its waits for verifiers spread evenly between them; others may run in these.",
        "Device-hours are those that worker groups hold, whether in use or not, over committed steps of tasks.",
    ):
        yield {"kind": "assumption", "text": text}


def _headlines(rows: list[Row]) -> dict[str, dict[str, Any]]:
    all_three = next(row["gain"] for row in rows if row["sharing"] and row["seer"] and row["multiplexing"])
    alone = max(row["gain"] for row in rows if row["sharing"] + row["seer"] + row["multiplexing"] == 1)
    note = "steps of tasks for a device-hour, over none of them"
    return {
        "all_three": headline(all_three, alone, "x", f"{note}; the goal is the best strand alone"),
        "best": headline(max(row["gain"] for row in rows), all_three, "x", f"{note}, of all combinations; the goal is all three"),
    }


def _six(value: float) -> float:
    return float(f"{value:.6g}")
