"""Scenarios of kind "jobs": each system's simulation, and its figures."""

from collections.abc import Callable

from plait.simulation.cluster import simulate_jobs
from plait.simulation.costs import CostModel, Efficiency, RooflineCosts
from plait.simulation.job_scenario import JobScenario, JobSystem
from plait.simulation.job_shape import JobShape
from plait.simulation.job_workload import cluster_of, failures_of, jobs_of
from plait.simulation.jobs_result import JobOutcome, JobsResult
from plait.simulation.model_shapes import model_shape
from plait.simulation.results import GroupLine, SeriesLine, SystemResult, WorkRow

OnTime = Callable[[str, float, float], None]
"""(System, simulated time, share of its steps that are done)"""


def simulate_job_systems(scenario: JobScenario, seed: int, is_quick: bool, on_time: OnTime | None = None) -> list[SystemResult]:
    return [simulate_system(scenario, system, seed, is_quick, on_time) for system in scenario.systems]


def simulate_system(
    scenario: JobScenario, system: JobSystem, seed: int, is_quick: bool, on_time: OnTime | None = None
) -> SystemResult:
    jobs = jobs_of(scenario, system, seed, is_quick)
    found = simulate_jobs(
        cluster_of(scenario), jobs, system.policy, system.order, seed, failures_of(scenario), scenario.until_s,
        costs_of=costs_of(scenario), on_time=None if on_time is None else lambda *now: on_time(system.name, *now),
    )  # fmt: skip
    return _result(scenario, system, jobs, found)


def costs_of(scenario: JobScenario) -> Callable[[str, int], CostModel]:
    """Of moving state; a group that hosts jobs of several models has none in particular."""
    device = cluster_of(scenario).accelerator
    efficiency = Efficiency(**scenario.efficiency.model_dump())
    some_model = scenario.jobs[0].model
    return lambda model, devices: RooflineCosts(device, model_shape(model or some_model), devices, efficiency=efficiency)


def _result(scenario: JobScenario, system: JobSystem, jobs: list[JobShape], found: JobsResult) -> SystemResult:
    end_s = found.makespan_s if scenario.until_s is None and found.makespan_s else found.end_s
    device_hours = found.num_devices * end_s / 3600
    price = scenario.cluster.price_per_device_hour
    busy_hours = found.busy_share * found.device_hours
    figures: dict[str, float | None] = {
        "makespan_s": found.makespan_s or None,
        "ended": found.num_ended,
        "steps": found.num_steps,
        "held_device_hours": found.device_hours,
        "device_hours_per_step": found.device_hours / found.num_steps if found.num_steps else None,
        "busy_share": found.busy_share,
        "cluster_utilisation": busy_hours / device_hours if device_hours else None,
        "setup_share": found.setup_share,
        "lost_share": found.lost_share,
        "decode_realised_to_peak": found.decode_realised_to_peak,
        "slowdown_mean": found.slowdowns.mean or None,
        "slowdown_p95": found.slowdowns.p95 or None,
        "slowdown_max": found.slowdowns.largest or None,
        "late": num_late(jobs, found.jobs),
        "queue_mean_s": found.job_waits.mean,
        "queue_p95_s": found.job_waits.p95,
        "call_wait_s": found.call_waits.mean,
        "switches": found.num_switches,
        "device_hours": device_hours,
        "cost": price * device_hours if price else None,
    }
    figures |= {f"device_hours_per_step/{model}": hours for model, hours in found.device_hours_per_step.items()}
    waits = {"wait for devices": found.job_waits, "wait of a call": found.call_waits, "slowdown": found.slowdowns}
    works = tuple(_work(job) for job in found.jobs)
    return SystemResult(system.name, end_s, figures, found.bin_s, *_lines(found, end_s), waits, works)


def num_late(jobs: list[JobShape], outcomes: tuple[JobOutcome, ...]) -> int:
    """Jobs that ended, and took more than their SLO allows."""
    slos = {job.job_id: job.slo for job in jobs}
    return sum(job.slowdown is not None and job.slowdown > slos[job.job_id] for job in outcomes)


def _work(job: JobOutcome) -> WorkRow:
    return WorkRow(
        job.job_id, job.kind, job.arrival_s, job.start_s, job.end_s, job.steps_done, job.slowdown, device_hours=job.device_hours
    )


def _lines(found: JobsResult, end_s: float) -> tuple[tuple[GroupLine, ...], tuple[SeriesLine, ...]]:
    num_bins = int(end_s / found.bin_s) + 1
    groups = []
    for row in found.timelines:
        shares = tuple(round(devices / row.num_devices, 5) for devices in row.busy[:num_bins])
        utilisation = sum(row.busy) * found.bin_s / (row.num_devices * end_s) if end_s else 0.0
        groups.append(GroupLine(row.row, row.num_devices, utilisation, shares))
    series = []
    for name in ("held", "setup"):
        rows = [getattr(row, name)[:num_bins] for row in found.timelines]
        means = tuple(round(sum(column), 3) for column in zip(*rows, strict=True))
        label = {"held": "devices held", "setup": "devices moving state"}[name]
        mean = sum(means) * found.bin_s / end_s if end_s else 0.0
        series.append(SeriesLine(label, mean, max(means, default=0.0), means))
    return tuple(groups), tuple(series)
