"""What the manager tells the driver to do. Each is given once; its outcome comes back to the manager as an event."""

import msgspec


class OpenTask(msgspec.Struct, frozen=True):
    """Find the task's latest version, or make its first; then `opened`."""

    task: str


class WarmStep(msgspec.Struct, frozen=True):
    """Make the supervised batch of a step; then `batch_ready`."""

    task: str
    step: int


class RollOut(msgspec.Struct, frozen=True):
    """Collect the batch of RL step `step` with policy version `version`; then `batch_ready`."""

    task: str
    step: int
    version: int


class Train(msgspec.Struct, frozen=True):
    """Send the ready batch of a step to the trainer; then `committed`."""

    task: str
    step: int


class Evaluate(msgspec.Struct, frozen=True):
    """Score version `version` on the held-out questions; then `evaluated`. `when` is "before", "periodic" or "after"."""

    task: str
    version: int
    when: str


class StopTask(msgspec.Struct, frozen=True):
    """The task has ended: drop what it still runs, and log why."""

    task: str
    state: str
    cause: str


Command = OpenTask | WarmStep | RollOut | Train | Evaluate | StopTask
