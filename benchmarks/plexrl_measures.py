"""From what happened to the figures of a row. Pure.

- A job's pace is taken between its first and its last step within the clock's time, so that no step counts in part.
- A worker-second is a second in which a worker process is held for a job, busy or not, as GPU-hours are counted.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from benchmarks.marlaas_measures import Digests
from benchmarks.plexrl_run import Outcome
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
        **(_of_groups(outcomes[0], sum(1 / time_s for time_s in times_s.values())) if system.groups is not None else {}),
    }


def _of_groups(outcome: Outcome, steps_per_s: float) -> dict[str, Any]:
    uses, measured_s = list(outcome.groups.values()), outcome.end_s - outcome.start_s
    num_calls, num_switches = sum(use.num_calls for use in uses), sum(use.num_switches for use in uses)
    return {
        "switches": num_switches,
        "switches_per_step": num_switches / (measured_s * steps_per_s),
        "setup_share": sum(use.setup_s for use in uses) / (measured_s * len(uses)),
        "prefetched_switches": sum(use.num_prefetches for use in uses) / max(1, num_switches),
        "prefetch_share": sum(use.prefetch_s for use in uses) / (measured_s * len(uses)),
        "busy_share": {name: use.busy_s / measured_s for name, use in outcome.groups.items()},
        "mean_delay_s": sum(use.waited_s for use in uses) / max(1, num_calls),
        "calls": num_calls,
        "device_share": {name: use.device_bytes / use.total_bytes for name, use in outcome.groups.items()},
        "total_bytes": {name: use.total_bytes for name, use in outcome.groups.items()},
    }
