"""From a run's events to the figures of a row. Pure.

- Decoding and training are told apart by the trainer's own times, since one process may do both.
- `rollout_utilisation` is the share of the time in which tokens were being decoded (or prompts computed); `utilisation` is by
  worker process, whatever it did. A pause of up to 20 ms between two pieces of work counts as work (`cluster.busy_meter`).
"""

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from benchmarks.marlaas_run import RunResult
from plait.observe.events import AnyEvent, PhaseSpan, StepCommitted, WorkerSpan

Digests = dict[tuple[str, int], str]
"""(task, step) -> digest of the adapter."""


def steps_of(events: Sequence[AnyEvent]) -> list[StepCommitted]:
    return [event for event in events if isinstance(event, StepCommitted)]


def digests_of(result: RunResult) -> Digests:
    return {(step.task, step.step): step.adapter_digest for step in steps_of(result.events)}


def measure(result: RunResult) -> dict[str, Any]:
    """Times in seconds, shares of 1."""
    steps, end_to_end_s = steps_of(result.events), result.end_s - result.start_s
    busy_s = busy_by_worker(result)
    training_s = sum(step.training_s or 0.0 for step in steps)
    rollout_s = max(0.0, busy_s["worker"] - training_s) if "worker" in busy_s else busy_s.get("rollout", 0.0)
    firsts_s = [step.time_s - result.start_s for step in steps if step.step == 1]
    return {
        "steps": len(steps),
        "end_to_end_s": end_to_end_s,
        "steps_per_hour": 3600 * len(steps) / end_to_end_s,
        "time_to_first_step_s": fmean(firsts_s),
        "time_per_step_s": end_to_end_s / len(steps),
        "task_time_per_step_s": task_time_per_step_s(result),
        "utilisation": {name: spent_s / end_to_end_s for name, spent_s in busy_s.items()},
        "idle_share": {name: 1 - spent_s / end_to_end_s for name, spent_s in busy_s.items()},
        "rollout_utilisation": rollout_s / end_to_end_s,
        "rollout_s": rollout_s,
        "training_s": training_s,
        "queued_s": sum(e.time_s - e.start_s for e in result.events if isinstance(e, PhaseSpan) and e.phase == "queued"),
        "sampled_tokens": sum(step.num_sampled_tokens or 0 for step in steps),
        "cpu_s": result.cpu_s,
        "cpu_share": {name: spent_s / end_to_end_s for name, spent_s in result.cpu_s.items()},
        "batch_invariant": result.is_batch_invariant,
    }


def busy_by_worker(result: RunResult) -> dict[str, float]:
    """Seconds of work of each worker while the clock ran."""
    busy_s: dict[str, float] = {}
    for event in result.events:
        if isinstance(event, WorkerSpan):
            inside_s = min(event.time_s, result.end_s) - max(event.start_s, result.start_s)
            busy_s[event.worker] = busy_s.get(event.worker, 0.0) + max(0.0, inside_s)
    return busy_s


def task_time_per_step_s(result: RunResult) -> float:
    """Mean time from one step of a task to its next; of a task with one step, there is none."""
    times_s: dict[str, list[float]] = {}
    for step in steps_of(result.events):
        times_s.setdefault(step.task, []).append(step.time_s)
    gaps_s = [later - earlier for times in times_s.values() for earlier, later in pairwise(times)]
    return fmean(gaps_s) if gaps_s else float("nan")
