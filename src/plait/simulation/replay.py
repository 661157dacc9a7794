"""A recorded run on other hardware, with another model, other policies, or more tasks: its traces as a scenario."""

from typing import Any

import msgspec

from plait.simulation.catalogue import read_table
from plait.simulation.check_scenario import check_scenario
from plait.simulation.hardware import accelerator
from plait.simulation.model_shapes import model_shape
from plait.simulation.recorded_lengths import RecordedLengths, recorded_lengths
from plait.simulation.run_trace import RunTrace, TaskTrace
from plait.simulation.scenario import (
    BaseSettings,
    ClusterSettings,
    LengthSettings,
    RolloutSettings,
    TaskScenario,
    TaskSettings,
    TaskSystem,
    TrainingSettings,
)
from plait.simulation.task_shape import TaskShape
from plait.types.errors import ConfigError

EPISODES_IN_A_CACHE = 4
"""At least, of the longest ones, where the replay chooses how many devices an engine has."""
DEFAULT_ACCELERATOR, DEFAULT_DEVICES, DEFAULT_TRAINING_SHARE = "H100", 4, 0.25
SYSTEMS = (TaskSystem(name="plait"), TaskSystem(name="one at a time", sharing="one_at_a_time"))


class Changes(msgspec.Struct, frozen=True):
    """What is to be otherwise than in the scenario, or than in the default."""

    accelerator: str | None = None
    devices: int | None = None
    model: str | None = None
    copies: int = 1
    """Of each recorded task; each begins at another recorded step."""


class Replay(msgspec.Struct, frozen=True):
    scenario: TaskScenario
    kinds: tuple[tuple[str, tuple[TaskShape, ...]], ...]
    """As `simulate_tasks` takes them."""


def replay(trace: RunTrace, changes: Changes, base: TaskScenario | None = None) -> Replay:
    """On the `base` scenario's cluster, under its systems; its own tasks do not count. ConfigError for what does not fit."""
    _check_names(changes)
    lengths = {task.name: recorded_lengths(task) for task in trace.tasks}
    tasks = tuple(_settings(task, lengths[task.name], changes.copies) for task in trace.tasks)
    values = (base or _default(trace, changes, tasks)).model_dump() | {"tasks": [task.model_dump() for task in tasks]}
    values = _changed(values, changes)
    title = f"Run {trace.name} on {values['cluster']['devices']} {values['cluster']['accelerator']} with {values['model']['name']}"
    scenario = TaskScenario.model_validate(values | {"title": title, "description": _describe(trace)})
    problems = check_scenario(scenario)
    if problems:
        raise ConfigError(
            f"run {trace.name} cannot be replayed so: {problems[0][1]}.", "Change --devices, --model or the scenario."
        )
    kinds = tuple(
        (task.name, tuple(_shape(task, number, changes.copies) for number in range(changes.copies))) for task in trace.tasks
    )
    return Replay(scenario, kinds)


def nearest_model(name: str) -> str:
    """The known shape of a run's model, by name; ConfigError if there is none."""
    wanted = name.rstrip("/").rpartition("/")[2].lower().replace("_", "-")
    fitting = [known for known in read_table("models") if wanted.startswith(known.lower())]
    if not fitting:
        known = ", ".join(sorted(read_table("models")))
        raise ConfigError(
            f'the run\'s model "{name}" is not in the table of models.', f"Name one of its size with --model: {known}."
        )
    return max(fitting, key=len)


def _default(trace: RunTrace, changes: Changes, tasks: tuple[TaskSettings, ...]) -> TaskScenario:
    devices, name = changes.devices or DEFAULT_DEVICES, changes.model or nearest_model(trace.model)
    cluster = ClusterSettings(accelerator=changes.accelerator or DEFAULT_ACCELERATOR, devices=devices)
    per_engine = _engine_devices(cluster, name, tasks)
    training = max(1, round(DEFAULT_TRAINING_SHARE * devices))
    training += (devices - training) % per_engine
    return TaskScenario(
        cluster=cluster, model=BaseSettings(name=name), rollout=RolloutSettings(devices_per_engine=per_engine),
        training=TrainingSettings(devices=min(training, devices)), tasks=tasks, systems=SYSTEMS,
    )  # fmt: skip


def _engine_devices(cluster: ClusterSettings, model: str, tasks: tuple[TaskSettings, ...]) -> int:
    """The fewest, in powers of two, whose memory holds the model and some of the longest episodes."""
    shape, memory = model_shape(model), accelerator(cluster.accelerator).memory_bytes * RolloutSettings().memory_share
    longest = max(task.prompt_tokens + task.turns * task.lengths.max_tokens for task in tasks)
    needed = shape.weight_bytes + EPISODES_IN_A_CACHE * longest * shape.kv_bytes_per_token
    per_engine = 1
    while per_engine * memory < needed:
        per_engine *= 2
    return per_engine


def _check_names(changes: Changes) -> None:
    if changes.accelerator is not None:
        accelerator(changes.accelerator, "--accelerator")
    if changes.model is not None:
        model_shape(changes.model, "--model")


def _changed(values: dict[str, Any], changes: Changes) -> dict[str, Any]:
    if changes.accelerator is not None:
        values["cluster"] |= {"accelerator": changes.accelerator, "devices_per_node": 0}
    if changes.devices is not None:
        values["cluster"] |= {"devices": changes.devices}
    if changes.model is not None:
        values["model"] |= {"name": changes.model}
    return values


def _settings(task: TaskTrace, lengths: RecordedLengths, copies: int) -> TaskSettings:
    return TaskSettings(
        name=task.name, count=copies, steps=len(task.steps), groups_per_step=task.groups_per_step, group_size=task.group_size,
        prompt_tokens=task.prompt_tokens, turns=task.turns, delay_s=task.delay_s, max_staleness=task.max_staleness,
        lengths=LengthSettings(
            median_tokens=lengths.median_tokens, sigma=lengths.sigma, correlation=lengths.correlation, max_tokens=lengths.max_tokens
        ),
    )  # fmt: skip


def _shape(task: TaskTrace, number: int, copies: int) -> TaskShape:
    offset = number * len(task.steps) // copies
    return TaskShape(
        name=task.name if copies == 1 else f"{task.name}-{number + 1}", steps=len(task.steps), groups_per_step=task.groups_per_step,
        group_size=task.group_size, prompt_tokens=task.prompt_tokens, lengths=recorded_lengths(task, offset), delay_s=task.delay_s,
        turns=task.turns, observation_tokens=task.observation_tokens, max_staleness=task.max_staleness,
    )  # fmt: skip


def _describe(trace: RunTrace) -> str:
    hours = trace.duration_s / 3600
    rate = f"{trace.num_steps / hours:,.0f}" if hours > 0 else "?"
    return (
        f"Lengths of answers, prompts, turns and waiting for environments are those that {trace.name} recorded with {trace.model}; "
        f"really it made {trace.num_steps} steps at {rate} an hour."
    )
