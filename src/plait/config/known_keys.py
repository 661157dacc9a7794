"""Which keys there are, where, and which of them a misspelt key was meant to be."""

import difflib
import typing
from collections.abc import Iterator, Mapping, Sequence
from types import UnionType
from typing import Any

from pydantic.fields import FieldInfo

from plait.config.base import Settings
from plait.config.environments import (
    CalculatorSettings,
    DatasetSettings,
    EnvironmentSettings,
    FunctionSettings,
    ReasoningGymSettings,
)
from plait.config.run import RunSettings

ENVIRONMENTS: dict[str, type[EnvironmentSettings]] = {
    "reasoning_gym": ReasoningGymSettings,
    "dataset": DatasetSettings,
    "function": FunctionSettings,
    "calculator": CalculatorSettings,
}

NAMES_ELSEWHERE = {
    "batch_size": "a step has groups_per_step x group_size trajectories",
    "train_batch_size": "a step has groups_per_step x group_size trajectories",
    "num_prompts": "groups_per_step",
    "num_generations": "group_size",
    "num_samples": "group_size",
    "rollout_n": "group_size",
    "lr": "optimizer.learning_rate",
    "max_tokens": "sampling.max_new_tokens",
    "max_completion_length": "sampling.max_new_tokens",
    "max_length": "model.max_context_tokens",
    "max_steps": "steps",
    "r": "rank",
    "lora_rank": "lora.rank",
    "lora_alpha": "lora.alpha",
    "kl_coef": "loss.kl_to_base",
    "reward": "environment.function",
    "reward_function": "environment.function",
    "threads": "workers.rollout_threads and workers.train_threads",
    "save_steps": "state.keep_every_steps",
}
"""What other trainers call things, and what is meant here."""

NEAR_ELSEWHERE = 0.8
"""How like a key of another table must be to be suggested."""


def settings_at(
    location: Sequence[str | int], data: Mapping[str, Any], root: type[Settings] = RunSettings
) -> type[Settings] | None:
    """The settings class whose keys may stand at the location below `root`; None where free keys may, or nothing."""
    found: type[Settings] | None = root
    value: Any = data
    for part in location:
        value = _child(value, part)
        if isinstance(part, int):
            continue
        field = found.model_fields.get(part) if found else None
        found = _settings_of(field, value) if field else None
    return found


def suggest_key(location: Sequence[str | int], data: Mapping[str, Any], root: type[Settings] = RunSettings) -> str:
    """ "; did you mean ...?" for an unknown key, or its place, or the keys that there are."""
    owner, key = settings_at(location[:-1], data, root), str(location[-1])
    if owner is None:
        return ""
    names = list(owner.model_fields)
    if near := difflib.get_close_matches(key, names, n=1):
        return f"; did you mean {near[0]!r}?"
    if root is RunSettings and key in NAMES_ELSEWHERE:
        return f"; here it is: {NAMES_ELSEWHERE[key]}"
    elsewhere: dict[str, list[str]] = {}
    for path in walk_keys(root):
        elsewhere.setdefault(path.rpartition(".")[2], []).append(path)
    if key in elsewhere:
        return f"; it belongs to {' or '.join(elsewhere[key][:3])}"
    if near := difflib.get_close_matches(key, elsewhere, n=1, cutoff=NEAR_ELSEWHERE):
        return f"; did you mean {' or '.join(elsewhere[near[0]][:3])}?"
    return f"; known here: {', '.join(sorted(names))}"


def suggest_value(value: Any, allowed: Sequence[str]) -> str:
    near = difflib.get_close_matches(value, allowed, n=1) if isinstance(value, str) else []
    return f'; did you mean "{near[0]}"?' if near else ""


def walk_keys(settings: type[Settings], prefix: str = "") -> Iterator[str]:
    """Dotted paths of all keys, those of every environment among them."""
    for name, field in settings.model_fields.items():
        yield f"{prefix}{name}"
        for inner in _all_settings_of(field):
            yield from walk_keys(inner, f"{prefix}{name}.")


def literal_values(field: FieldInfo | None) -> tuple[str, ...]:
    return typing.get_args(field.annotation) if field and typing.get_origin(field.annotation) is typing.Literal else ()


def _settings_of(field: FieldInfo, value: Any) -> type[Settings] | None:
    candidates = _all_settings_of(field)
    if len(candidates) < 2:
        return candidates[0] if candidates else None
    kind = value.get("kind") if isinstance(value, Mapping) else None
    return ENVIRONMENTS.get(kind) if isinstance(kind, str) else None


def _all_settings_of(field: FieldInfo) -> list[type[Settings]]:
    return [part for part in _flatten(field.annotation) if isinstance(part, type) and issubclass(part, Settings)]


def _flatten(annotation: Any) -> Iterator[Any]:
    if typing.get_origin(annotation) in (typing.Union, UnionType, tuple, typing.Annotated):
        for part in typing.get_args(annotation):
            yield from _flatten(part)
    else:
        yield annotation


def _child(value: Any, part: str | int) -> Any:
    if isinstance(value, Mapping):
        return value.get(part)
    return value[part] if isinstance(value, list) and isinstance(part, int) and part < len(value) else None
