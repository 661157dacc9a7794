"""From what happened to the figures of a row. Pure.

- A job's pace is taken between its first and its last step within the clock's time, so that no step counts in part.
- A worker-second is a second in which a worker process is held for a job, busy or not, as GPU-hours are counted.
- Fewer workers save at most their share, which they do if no job is slower for it (`least_of_split`).
- What a step takes beyond what it takes alone is waiting for calls of others, setup, and the rest: what else shares the cores.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from benchmarks.marlaas_measures import Digests
from benchmarks.plexrl_run import GroupUse, Outcome
from benchmarks.plexrl_systems import System
from plait.observe.events import StepCommitted, WorkerSpan


def digests_of(outcomes: Sequence[Outcome]) -> Digests:
    events = (event for outcome in outcomes for events in outcome.events.values() for event in events)
    return {(event.task, event.step): event.adapter_digest for event in events if isinstance(event, StepCommitted)}


def step_times_s(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Mean, by job. RuntimeError if a job took less than two steps."""
    times_s = {}
    for outcome in outcomes:
        for job, events in outcome.events.items():
            commits_s = [
                event.time_s
                for event in events
                if isinstance(event, StepCommitted) and outcome.start_s <= event.time_s <= outcome.end_s
            ]
            if len(commits_s) < 2:
                raise RuntimeError(f"{job} took {len(commits_s)} steps in {outcome.end_s - outcome.start_s:.0f} s: measure longer")
            times_s[job] = (commits_s[-1] - commits_s[0]) / (len(commits_s) - 1)
    return times_s


def busy_shares(outcomes: Sequence[Outcome], worker: str) -> dict[str, float]:
    """Of a job's own worker, by job."""
    shares = {}
    for outcome in outcomes:
        for job, events in outcome.events.items():
            spans = [event for event in events if isinstance(event, WorkerSpan) and event.worker == worker]
            inside_s = [min(span.time_s, outcome.end_s) - max(span.start_s, outcome.start_s) for span in spans]
            shares[job] = sum(max(0.0, seconds) for seconds in inside_s) / (outcome.end_s - outcome.start_s)
    return shares


def row_of(scenario: str, system: System, outcomes: Sequence[Outcome], alone_s: Mapping[str, float]) -> dict[str, Any]:
    """`alone_s`: time of a step of each job that has the machine to itself."""
    times_s = step_times_s(outcomes)
    num_workers = system.num_workers(list(times_s))
    slowdowns = {job: time_s / alone_s[job] for job, time_s in times_s.items()}
    return {
        "scenario": scenario,
        "system": system.name,
        "order": system.order if system.groups is not None else "",
        "workers": num_workers,
        "measured_s": sum(outcome.end_s - outcome.start_s for outcome in outcomes),
        "steps_per_s": sum(1 / time_s for time_s in times_s.values()),
        "worker_seconds_per_step": num_workers / sum(1 / time_s for time_s in times_s.values()),
        "step_s": times_s,
        "slowdown": slowdowns,
        "mean_slowdown": fmean(slowdowns.values()),
        "max_slowdown": max(slowdowns.values()),
        **(_of_groups(outcomes[0], times_s, alone_s) if system.groups is not None else {}),
    }


def of_split(row: Mapping[str, Any], split: Mapping[str, Any]) -> dict[str, float]:
    """What a step takes of split workers' worker-seconds, and at least takes."""
    return {
        "of_split": row["worker_seconds_per_step"] / split["worker_seconds_per_step"],
        "least_of_split": row["workers"] / split["workers"],
    }


def _lost_s_per_step(
    uses: Sequence[GroupUse], num_steps: float, times_s: Mapping[str, float], alone_s: Mapping[str, float]
) -> dict[str, float]:
    """Mean over all steps; what `uses` say of waiting and setup is of all jobs together."""
    steps_per_s = sum(1 / time_s for time_s in times_s.values())
    lost_s = sum(1 - alone_s[job] / time_s for job, time_s in times_s.items()) / steps_per_s
    waiting_s, setup_s = sum(use.waited_s for use in uses) / num_steps, sum(use.setup_s for use in uses) / num_steps
    return {"all": lost_s, "waiting": waiting_s, "setup": setup_s, "rest": lost_s - waiting_s - setup_s}


def _of_groups(outcome: Outcome, times_s: Mapping[str, float], alone_s: Mapping[str, float]) -> dict[str, Any]:
    uses, measured_s = list(outcome.groups.values()), outcome.end_s - outcome.start_s
    num_calls, num_switches = sum(use.num_calls for use in uses), sum(use.num_switches for use in uses)
    num_steps = measured_s * sum(1 / time_s for time_s in times_s.values())
    return {
        "switches": num_switches,
        "switches_per_step": num_switches / num_steps,
        "lost_s_per_step": _lost_s_per_step(uses, num_steps, times_s, alone_s),
        "setup_share": sum(use.setup_s for use in uses) / (measured_s * len(uses)),
        "prefetched_switches": sum(use.num_prefetches for use in uses) / max(1, num_switches),
        "prefetch_share": sum(use.prefetch_s for use in uses) / (measured_s * len(uses)),
        "busy_share": {name: use.busy_s / measured_s for name, use in outcome.groups.items()},
        "mean_delay_s": sum(use.waited_s for use in uses) / max(1, num_calls),
        "calls": num_calls,
        "device_share": {name: use.device_bytes / use.total_bytes for name, use in outcome.groups.items()},
        "total_bytes": {name: use.total_bytes for name, use in outcome.groups.items()},
    }
