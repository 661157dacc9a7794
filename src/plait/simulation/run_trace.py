"""What a recorded run says of its workload: who asked for how many tokens, how long environments took, and how fast it all was."""

import tomllib
from collections.abc import Mapping
from statistics import fmean, median
from typing import Any

import msgspec

from plait.observe.events import RunStarted, StepCommitted
from plait.observe.log import read_latest_events
from plait.state.rundir import RunDirectory
from plait.state.samples import read_samples
from plait.types.errors import StateError

Conversation = tuple[int, ...]
"""Tokens that were drawn in each turn."""


class TaskTrace(msgspec.Struct, frozen=True):
    name: str
    groups_per_step: int
    group_size: int
    prompt_tokens: int
    """Of a conversation's first prompt, the median."""
    observation_tokens: int
    """What came between two turns, the mean."""
    turns: int
    """Of a conversation, the mean."""
    delay_s: float
    """Of the environment after each answer. The log shows only the time in which a task did nothing but wait for it."""
    max_staleness: int
    steps: tuple[tuple[tuple[Conversation, ...], ...], ...]
    """Step, group, conversation."""


class RunTrace(msgspec.Struct, frozen=True):
    name: str
    model: str
    duration_s: float
    """From the start of the first recorded step to the last commit."""
    num_steps: int
    tasks: tuple[TaskTrace, ...]


def read_trace(directory: RunDirectory) -> RunTrace:
    """StateError if it has no reinforcement-learning step with samples."""
    events = list(read_latest_events(directory.events))
    settings = _task_settings(directory)
    steps = [event for event in events if isinstance(event, StepCommitted) and event.phase == "rl"]
    model = next((event.model for event in events if isinstance(event, RunStarted)), "")
    traces = [_task(directory, name, settings.get(name, {}), steps) for name in dict.fromkeys(step.task for step in steps)]
    tasks = tuple(trace for trace in traces if trace is not None)
    if not tasks:
        raise StateError(f"run {directory.name} has no committed step with samples.", "`plait status` shows how far runs are.")
    start_s = min(step.time_s - _length_s(step) for step in steps)
    return RunTrace(directory.name, model, max(step.time_s for step in steps) - start_s, len(steps), tasks)


def _length_s(step: StepCommitted) -> float:
    """Its phases follow each other."""
    return sum(seconds or 0.0 for seconds in (step.rollout_s, step.environment_s, step.queued_s, step.training_s))


def _task_settings(directory: RunDirectory) -> Mapping[str, Mapping[str, Any]]:
    try:
        data = tomllib.loads(directory.config.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise StateError(f"cannot read {directory.config}: {error}.", "The run's settings are needed to replay it.") from error
    return {str(task.get("name")): task for task in data.get("tasks", [])}


def _task(directory: RunDirectory, name: str, settings: Mapping[str, Any], steps: list[StepCommitted]) -> TaskTrace | None:
    recorded, prompts, observations, delays_s = [], list[int](), list[int](), list[float]()
    for step in sorted((step for step in steps if step.task == name), key=lambda step: step.step):
        path = directory.samples_file(name, step.step)
        if not path.exists():
            continue
        groups: dict[int, list[Conversation]] = {}
        for record in read_samples(path):
            segments = record.trajectory.segments
            drawn = tuple(len(segment.tokens) for segment in segments if segment.is_sampled and segment.tokens)
            groups.setdefault(record.trajectory.group_index, []).append(drawn or (1,))
            prompts.append(len(segments[0].tokens) if segments else 1)
            observations += [len(segment.tokens) for segment in segments[1:] if not segment.is_sampled]
        recorded.append(tuple(tuple(conversations) for _, conversations in sorted(groups.items())))
        delays_s.append(step.environment_s or 0.0)
    if not any(recorded):
        return None
    conversations = [drawn for groups_ in recorded for group in groups_ for drawn in group]
    turns = max(1, round(fmean(len(drawn) for drawn in conversations)))
    sizes = [len(group) for groups_ in recorded for group in groups_]
    return TaskTrace(
        name,
        groups_per_step=int(settings.get("groups_per_step", max(len(groups_) for groups_ in recorded))),
        group_size=int(settings.get("group_size", max(sizes))),
        prompt_tokens=max(1, round(median(prompts))),
        observation_tokens=round(fmean(observations)) if observations else 0,
        turns=turns,
        delay_s=median(delays_s) / turns,
        max_staleness=int(settings.get("max_staleness", 0)),
        steps=tuple(recorded),
    )
