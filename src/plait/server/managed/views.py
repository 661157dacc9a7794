"""Managed runs and uploads as clients see them."""

from typing import Any

import msgspec
from pydantic import BaseModel

from plait.observe.summary import RunSummary
from plait.server.database.tables import ManagedRun, Upload


class TaskView(BaseModel):
    name: str
    model: str = ""
    """Its base model, where the run has several."""
    state: str
    cause: str = ""
    phase: str = ""
    step: int = 0
    total_steps: int | None = None
    policy_version: int = 0
    reward_last: float | None = None
    reward_best: float | None = None
    accuracy_before: float | None = None
    accuracy_last: float | None = None
    accuracy_best: float | None = None
    tokens_per_s: float | None = None
    num_errors: int = 0
    last_error: str = ""
    remaining_s: float | None = None


class RunView(BaseModel):
    run_id: str
    state: str
    """queued, running, paused, done, failed or cancelled."""
    created_s: float
    ended_s: float | None = None
    tasks: list[TaskView] = []
    """Absent from listings."""


class RunList(BaseModel):
    runs: list[RunView]
    total: int


class UploadView(BaseModel):
    name: str
    size_bytes: int
    created_s: float


class UploadList(BaseModel):
    uploads: list[UploadView]
    total: int


def run_view(row: ManagedRun, state: str | None = None) -> RunView:
    return RunView(run_id=row.run_id, state=state or row.state, created_s=row.created_s, ended_s=row.ended_s)


def task_views(names: tuple[str, ...], summary: RunSummary, now_s: float) -> list[TaskView]:
    """One of each task, also of those that have not begun."""
    known = {task.task: msgspec.to_builtins(task) for task in summary.snapshot(now_s).tasks}
    return [_task_view(name, known.get(name, {})) for name in names]


def _task_view(name: str, known: dict[str, Any]) -> TaskView:
    fields = {key: known[key] for key in TaskView.model_fields if key in known}
    return TaskView(**({"state": "pending"} | fields | {"name": name}))


def upload_view(row: Upload) -> UploadView:
    return UploadView(name=row.name, size_bytes=row.size_bytes, created_s=row.created_s)
