"""What the manager tells the driver to do."""

import msgspec


class OpenTask(msgspec.Struct, frozen=True):
    task: str


class WarmStep(msgspec.Struct, frozen=True):
    """Make the supervised batch of a step and report it ready."""

    task: str
    step: int


class RollOut(msgspec.Struct, frozen=True):
    """Collect the batch of RL step `step` with policy version `version`."""

    task: str
    step: int
    version: int


class Train(msgspec.Struct, frozen=True):
    """Send the ready batch of a step to the trainer."""

    task: str
    step: int


class Evaluate(msgspec.Struct, frozen=True):
    task: str
    version: int
    when: str


class StopTask(msgspec.Struct, frozen=True):
    """The task has ended: drop what it still runs, and log why."""

    task: str
    state: str
    cause: str


Command = OpenTask | WarmStep | RollOut | Train | Evaluate | StopTask
