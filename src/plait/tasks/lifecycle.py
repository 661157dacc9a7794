"""The life of a task as a table. Pure."""

from enum import StrEnum

from plait.types.errors import PlaitError


class TaskState(StrEnum):
    CREATED = "created"
    """Its latest version is being looked for."""
    RUNNING = "running"
    PAUSED = "paused"
    """No step and no evaluation starts; what runs completes, training included."""
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


TRANSITIONS: dict[TaskState, frozenset[TaskState]] = {
    TaskState.CREATED: frozenset({TaskState.RUNNING, TaskState.PAUSED, TaskState.CANCELLED, TaskState.FAILED}),
    TaskState.RUNNING: frozenset({TaskState.PAUSED, TaskState.DONE, TaskState.CANCELLED, TaskState.FAILED}),
    TaskState.PAUSED: frozenset({TaskState.RUNNING, TaskState.DONE, TaskState.CANCELLED, TaskState.FAILED}),
    TaskState.DONE: frozenset(),
    TaskState.CANCELLED: frozenset(),
    TaskState.FAILED: frozenset(),
}
"""The states each may be followed by."""

ENDED = frozenset(state for state, following in TRANSITIONS.items() if not following)
"""States that are never left."""


def check_transition(task: str, start: TaskState, end: TaskState) -> None:
    """Raise PlaitError for a change of state that the table does not have."""
    if end not in TRANSITIONS[start]:
        allowed = ", ".join(sorted(TRANSITIONS[start])) or "none"
        raise PlaitError(f"task {task!r} is {start} and cannot become {end}.", f"From {start} it may become: {allowed}.")
