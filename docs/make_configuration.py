"""Write docs/configuration.md from the settings' own types, bounds, defaults and docstrings: `python docs/make_configuration.py`.

With `--check` nothing is written; the exit code is 1 if the page is not what would be written.
"""

import json
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import annotated_types
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from plait.config.base import Settings
from plait.config.environments import DelaySettings, EnvironmentSettings
from plait.config.known_keys import ENVIRONMENTS
from plait.config.run import RunSettings
from plait.config.task import TaskSettings

PAGE = Path(__file__).with_name("configuration.md")

OPENING = """\
# Configuration

<!-- Written by docs/make_configuration.py from src/plait/config. Do not edit: change the settings' docstrings, then run it. -->

A run is described by one TOML file. `plait run --example` prints a short one, `plait run --dry-run FILE` checks a file and says
what the run needs, and the settings in force, defaults included, are kept in `RUN/config.toml`.

- An unknown key, a value of the wrong type and a key that would have no effect are errors. Each names the key and, where there
  is one, the nearest that exists. All faults of a file are told at once.
- Nothing is converted: `"1"` is not a number and `1` is not `true`. A whole number may stand for a float.
- Relative paths are taken from the folder of the file.
- "–" in the column of defaults means that the key is absent; **required** that it must be given.
"""

SECTIONS = {
    "model": "The frozen base model that all tasks share.",
    "workers": "The processes of the run and their threads.",
    "engine": "Generation.",
    "training": "Training, the same for all tasks; what to train is the tasks' business.",
    "state": "What is kept.",
    "tracking": "Trackers that follow the event log. They may fail without harm to the run.",
}

MEANINGS = {
    "RunSettings.name": "Folder of the run under `runs/`. A name that is taken gets `-2`, `-3`, ...",
    "RunSettings.seed": "Part of the seed of every sampled token.",
    "ModelSettings.dtype": "Of weights and activations. Adapters and their optimizer are always float32.",
    "ModelSettings.device": '"auto": CUDA if torch sees it, else the CPU.',
    "WorkerSettings.rollout_threads": "Of the rollout process. While the trainer is idle, its threads are added.",
    "WorkerSettings.train_threads": "Of the training process. Together with rollout_threads not more than there are cores.",
    "WorkerSettings.environment_processes": "Processes that run environments and rewards, shared by all tasks.",
    "TrackingSettings.tensorboard": "Write TensorBoard files to `RUN/tracking`.",
    "TaskSettings.name": "Names the task everywhere; unique in the run.",
    "TaskSettings.advantage": "What a reward is compared with: the other answers to the same question, or nothing (`raw`).",
    "TaskSettings.seed": "Part of the seed of every token that this task samples.",
    "LoraSettings.rank": "Inner width of the adapter.",
    "LoraSettings.alpha": "The adapter's output is scaled by alpha / rank.",
    "LoraSettings.target_modules": "Layers that get an adapter; the default is all linear layers but the unembedding, `lm_head`.",
    "LoraSettings.seed": "Of the random half of the adapter (A); the other half (B) starts at zero.",
    "SamplingSettings.temperature": "Of training rollouts.",
    "SamplingSettings.stop_strings": "An answer ends when its text comes to contain one of them.",
    "LossSettings.kind": "The loss of RL steps. The warm start always uses cross-entropy.",
    "OptimizerSettings.learning_rate": "At its highest.",
    "OptimizerSettings.beta1": "Decay of the first moment.",
    "OptimizerSettings.beta2": "Decay of the second moment.",
    "OptimizerSettings.epsilon": "Added to the root of the second moment.",
    "OptimizerSettings.weight_decay": "Decoupled from the gradient.",
    "OptimizerSettings.schedule": "Course of the learning rate after the warm-up, over the RL steps.",
    "OptimizerSettings.warmup_steps": "RL steps in which the learning rate grows to its full height.",
    "WarmStartSettings.steps": "0: no warm start.",
    "WarmStartSettings.examples_per_step": "Worked answers in a step.",
    "WarmStartSettings.learning_rate": "Of the warm start; constant.",
    "EvaluationSettings.temperature": "0 is greedy.",
    "EarlyStoppingSettings.target": "Stop when a held-out accuracy of the RL phase reaches this.",
    "EarlyStoppingSettings.patience_evaluations": "Stop when so many evaluations in a row bring no gain.",
    "EarlyStoppingSettings.min_gain": "A smaller gain than this counts as none.",
    "DelaySettings.kind": "`long_tailed` is log-normal.",
    "DelaySettings.mean_s": "Mean length of the wait.",
    "EnvironmentSettings.setup_timeout_s": "Limit of asking for a question, of set-up and of clean-up.",
    "EnvironmentSettings.turn_timeout_s": "Limit of one turn of the environment.",
    "EnvironmentSettings.score_timeout_s": "Limit of scoring one episode.",
    "DatasetSettings.format": "Which fields hold question and answer; see [environments](environments.md).",
    "DatasetSettings.split": "Of a hub data set.",
    "DatasetSettings.instruction": "Appended to each question.",
    "CalculatorSettings.min_value": "Smallest operand.",
    "CalculatorSettings.max_value": "Largest operand.",
    "CalculatorSettings.operations": "Drawn from for each question.",
}
"""For keys whose settings have no docstring yet; one that has a docstring must not stand here."""

KIND = 'Chooses the kind: `kind = "{kind}"`.'
NAMES_OF_TYPES: dict[Any, str] = {str: "string", int: "whole number", float: "number", bool: "true or false", Path: "path"}


def main() -> None:
    page = make_page()
    if "--check" in sys.argv[1:]:
        sys.exit(0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page else f"{PAGE} is out of date: run {__file__}")
    PAGE.write_text(page, encoding="utf-8")


def make_page() -> str:
    return "\n".join(
        [
            OPENING,
            *_section("The run", "", RunSettings),
            *(line for name, text in SECTIONS.items() for line in _section(f"[{name}]", text, _inner(RunSettings, name))),
            *_section("[[tasks]]", "One table for each task, as many as you like.", TaskSettings),
            *_task_sections(),
            *_environment_sections(),
        ]
    )


def _task_sections() -> Iterator[str]:
    for name in TaskSettings.model_fields:
        inner = _inner_or_none(TaskSettings, name)
        if inner is not None and name != "environment":
            yield from _section(f"[tasks.{name}]", _prose(inner), inner)


def _environment_sections() -> Iterator[str]:
    text = "Where questions come from and how answers are scored. `kind` chooses one of the four below; these keys they share."
    yield from _section("[tasks.environment]", text, EnvironmentSettings)
    for kind, settings in ENVIRONMENTS.items():
        own = [name for name in settings.model_fields if name not in EnvironmentSettings.model_fields]
        yield from _section(f'[tasks.environment], kind = "{kind}"', _prose(settings), settings, own)
    yield from _section("[tasks.environment.delay]", _prose(DelaySettings), DelaySettings)


def _section(title: str, text: str, settings: type[Settings], names: list[str] | None = None) -> Iterator[str]:
    yield from (f"## {title}", "")
    if text:
        yield from (text, "")
    yield from ("| key | type | default | meaning |", "|---|---|---|---|")
    for name in settings.model_fields if names is None else names:
        field = settings.model_fields[name]
        yield f"| `{name}` | {_cell(_type(field))} | {_cell(_default(field))} | {_cell(_meaning(settings, name))} |"
    yield ""


def _prose(settings: type[Settings]) -> str:
    """The class's own docstring, in one paragraph."""
    text = settings.__dict__.get("__doc__") or ""
    return " ".join(text.split())


def _meaning(settings: type[Settings], name: str) -> str:
    field = settings.model_fields[name]
    owner = next(cls.__name__ for cls in reversed(settings.__mro__) if name in getattr(cls, "__annotations__", {}))
    if name == "kind" and field.default not in (PydanticUndefined, None) and len(_options(field.annotation)) == 1:
        return KIND.format(kind=field.default)
    if _table(settings, name):
        return _table(settings, name)
    text = " ".join((field.description or MEANINGS.get(f"{owner}.{name}", "")).split())
    if not text:
        raise SystemExit(f"{owner}.{name} has no docstring: write one in src/plait/config")
    return text


def _table(settings: type[Settings], name: str) -> str:
    """Where the keys of a table are listed, for a field that is one."""
    if settings is RunSettings and name == "tasks":
        return "See `[[tasks]]`."
    if settings is not RunSettings and name == "environment":
        return "See `[tasks.environment]`."
    inner = _inner_or_none(settings, name)
    if inner is None:
        return ""
    return (
        f"See `[{name}]`."
        if settings is RunSettings
        else f"See `[tasks.{'environment.' if inner is DelaySettings else ''}{name}]`."
    )


def _inner(settings: type[Settings], name: str) -> type[Settings]:
    inner = _inner_or_none(settings, name)
    assert inner is not None
    return inner


def _inner_or_none(settings: type[Settings], name: str) -> type[Settings] | None:
    """The settings class of a table."""
    for part in _parts(settings.model_fields[name].annotation):
        if isinstance(part, type) and issubclass(part, Settings):
            return part
    return None


def _parts(annotation: Any) -> tuple[Any, ...]:
    """The members of a union."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return typing.get_args(annotation)
    return (annotation,)


def _options(annotation: Any) -> tuple[Any, ...]:
    return typing.get_args(annotation) if typing.get_origin(annotation) is Literal else ()


def _type(field: FieldInfo) -> str:
    parts = [part for part in _parts(field.annotation) if part is not type(None)]
    return " or ".join(dict.fromkeys(_type_name(part) for part in parts)) + _bounds(field.metadata, field.annotation)


def _type_name(annotation: Any) -> str:
    if typing.get_origin(annotation) is typing.Annotated:
        inner, *metadata = typing.get_args(annotation)
        found = [item for part in metadata for item in (part.metadata if isinstance(part, FieldInfo) else [part])]
        return _type_name(inner) + _bounds(found, inner)
    if options := _options(annotation):
        return ", ".join(f"`{json.dumps(option)}`" for option in options)
    if typing.get_origin(annotation) is tuple:
        inner = typing.get_args(annotation)[0]
        return "list of tables" if inner is TaskSettings else f"list of {_type_name(inner)}"
    if typing.get_origin(annotation) is dict or (isinstance(annotation, type) and issubclass(annotation, Settings)):
        return "table"
    return NAMES_OF_TYPES[annotation]


def _bounds(metadata: list[Any], annotation: Any) -> str:
    """`, 1 to 512`, `, above 0`."""
    found: dict[str, Any] = {}
    for item in metadata:
        for name in ("ge", "gt", "le", "lt", "pattern"):
            value = getattr(item, name, None)
            if value is not None:
                found[name] = value
        if isinstance(item, annotated_types.MinLen):
            found["min_length"] = item.min_length
    upto = "to" if "ge" in found else "up to"
    low = f"from {found['ge']}" if "ge" in found else f"above {found['gt']}" if "gt" in found else ""
    high = f"{upto} {found['le']}" if "le" in found else f"below {found['lt']}" if "lt" in found else ""
    text = " ".join(part for part in (low, high) if part)
    if "pattern" in found:
        text = f"`{found['pattern']}`"
    if "min_length" in found:
        text = f"at least {found['min_length']}"
    return f", {text}" if text else ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    if field.default is None:
        return "–"
    if isinstance(field.default, Settings):
        return "its defaults"
    if isinstance(field.default, float):
        return f"`{field.default:g}`"
    value = list(field.default) if isinstance(field.default, tuple) else field.default
    return f"`{json.dumps(value)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    main()
