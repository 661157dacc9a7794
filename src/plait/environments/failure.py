"""Which call to an environment failed, and how."""

from typing import Literal

from plait.types.errors import EnvironmentFailure

Stage = Literal["build", "example", "setup", "turn", "score", "cleanup"]
FailureKind = Literal["timeout", "error", "died"]


class StageFailure(EnvironmentFailure):
    """`kind`: it took too long, it raised (`cause` has the traceback), or its process ended."""

    def __init__(self, task: str, stage: Stage, kind: FailureKind, cause: str, remedy: str = "") -> None:
        super().__init__(f"task {task!r}: {stage} of its environment failed ({kind}): {cause}", remedy)
        self.task = task
        self.stage: Stage = stage
        self.kind: FailureKind = kind
        self.cause = cause
