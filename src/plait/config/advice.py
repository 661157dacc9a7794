"""What is allowed and most likely not meant. Nothing is refused for it."""

from collections.abc import Iterator

from plait.config.task import OptimizerSettings, TaskSettings, WarmStartSettings

MAX_FULL_RATE = 5e-5
"""Of all weights: rates above it mostly undo what the base can do. An adapter takes ten times as much and more."""
FULL_RATE = 1e-5
"""To start with."""


def advise(task: TaskSettings) -> Iterator[str]:
    """One line for each setting that a person should look at again; keys are the task's."""
    if task.training == "full":
        yield from _high_rate("optimizer", task.optimizer)
        if task.warm_start.steps:
            yield from _high_rate("warm_start", task.warm_start)


def _high_rate(table: str, settings: OptimizerSettings | WarmStartSettings) -> Iterator[str]:
    rate = settings.learning_rate
    if rate > MAX_FULL_RATE:
        default = type(settings).model_fields["learning_rate"].default
        origin = " (the default, which is for adapters)" if rate == default else ""
        yield f'{table}.learning_rate = {rate:g}{origin} is high for training = "full": start at {FULL_RATE:g}'
