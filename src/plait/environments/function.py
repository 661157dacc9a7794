"""A user's own callable scores: `(example, answer) -> float`, with the example as a dict that has a `question`.

Examples are the lines of a JSONL file, or come from a second callable `(index, seed) -> dict`, which must be deterministic.
A `demonstration` in an example (text) serves the supervised warm start. A score may also be a `Score`, with metrics.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from plait.config.environments import FunctionSettings
from plait.environments.protocol import Example, Score, SingleTurnEnvironment, Split, State, prompt_messages
from plait.environments.records import load_records
from plait.environments.split import GeneratedSplit, ListedSplit
from plait.types.errors import ConfigError
from plait.types.seeds import derive_seed


class FunctionEnvironment(SingleTurnEnvironment):
    def __init__(self, settings: FunctionSettings) -> None:
        if (settings.path is None) == (settings.examples is None):
            raise ConfigError(
                "environment.path and environment.examples: exactly one of them must be set.", "It gives the questions."
            )
        self._settings = settings
        self._function = load_callable(settings.function, "function")
        self._split = self._generated(settings.examples) if settings.examples else self._listed(str(settings.path))

    def example(self, index: int, split: Split) -> Example:
        fields = self._split.entry(index, split)
        demonstration = fields.get("demonstration", ())
        return Example(
            example_id=f"{split}-{index}" if self._settings.examples else fields["example_id"],
            messages=prompt_messages(fields["question"], self._settings.system_prompt),
            data=fields,
            demonstration=(demonstration,) if isinstance(demonstration, str) else tuple(demonstration),
        )

    def count_evaluation(self, limit: int) -> int:
        return self._split.count_evaluation(limit)

    def score(self, example: Example, state: State, answers: tuple[str, ...]) -> Score:
        value = self._function(dict(example.data), answers[-1])
        if isinstance(value, Score):
            return value
        if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
            raise TypeError(f"{self._settings.function} returned {value!r}, which is not a number")
        return Score(float(value))

    def _generated(self, name: str) -> GeneratedSplit[dict[str, Any]]:
        examples = load_callable(name, "examples")

        def draw(index: int, split: Split) -> dict[str, Any]:
            return _checked(examples(index, derive_seed("function", self._settings.seed, split) % 2**31), name)

        return GeneratedSplit(draw, lambda fields: fields["question"], name)

    def _listed(self, path: str) -> ListedSplit[dict[str, Any]]:
        entries = [
            {"example_id": f"line-{record.number}", **record.fields, "question": record.text("question")}
            for record in load_records(path, "train")
        ]
        return ListedSplit(entries, None, lambda fields: fields["question"], self._settings.seed, path)


def load_callable(name: str, key: str) -> Callable[..., Any]:
    """Find "module:name" or "file.py:name"; `key` is the setting it came from. Raise ConfigError if it is not there."""
    module_name, _, attribute = name.rpartition(":")
    if not module_name or not attribute:
        raise ConfigError(f"environment.{key} is {name!r}.", 'Write it as "module:name" or "file.py:name".')
    module = _load_file(module_name, key) if module_name.endswith(".py") else _import_module(module_name, key)
    found = getattr(module, attribute, None)
    if not callable(found):
        raise ConfigError(f"environment.{key}: {module_name} has no callable {attribute!r}.", "Check the name after the colon.")
    return found


def _import_module(name: str, key: str) -> Any:
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"environment.{key}: {error}.", "Start plait where the module can be imported, or give the path of a .py file."
        ) from error


def _load_file(path: str, key: str) -> Any:
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        raise ConfigError(f"environment.{key}: {path} does not exist.", "Relative paths start at the current folder.")
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    name = f"plait_user_{derive_seed(str(file))}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _checked(fields: Any, name: str) -> dict[str, Any]:
    if not isinstance(fields, dict) or not isinstance(fields.get("question"), str):
        raise TypeError(f"{name} returned {fields!r}; a dict with a text under 'question' is needed")
    return fields
