"""A small real run, with real engines and a real trainer, and what its task manager and dispatcher were told and decided."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from plait.client.runs import run_file
from plait.cluster import worker
from plait.config.load import effective_toml
from plait.models.invariance import InvarianceReport
from plait.rollout.context_scheduler import ContextScheduler
from plait.rollout.dispatcher import Dispatcher, Handed
from plait.rollout.request import GenerationRequest
from plait.state.rundir import RunDirectory
from plait.tasks.manager import TaskManager
from tests.runs import tiny_settings, tiny_task

MANAGED = ("add", "opened", "batch_ready", "committed")
Event = tuple[Any, ...]


@dataclass
class Recorded:
    """A run, and what its task manager and its dispatcher were told and decided, in order."""

    directory: RunDirectory
    managed: list[Event] = field(default_factory=list)
    """(event, arguments, commands)."""
    dispatched: list[Event] = field(default_factory=list)
    scheduler: ContextScheduler | None = None

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        for name in MANAGED:
            after(patch, TaskManager, name, told_as(name, self.managed))
        note = self.dispatched.append
        after(patch, Dispatcher, "attach", self._attached)
        after(patch, ContextScheduler, "add", lambda _, arguments, found: note(("add", copied(arguments[0]))))
        after(
            patch,
            ContextScheduler,
            "requeue",
            lambda of, names, _: note(("goes on", *names, len(of._samples[names[0]].request.tokens))),
        )
        after(patch, ContextScheduler, "finish", lambda _, names, request: note(("is over", *names, len(request.tokens))))
        after(patch, Dispatcher, "remove", lambda _, arguments, found: note(("remove", arguments[0].request_id)))
        after(patch, Dispatcher, "place", lambda of, _, found: note(("place", rows_of(of), decided(found))))

    def _attached(self, dispatcher: Any, arguments: tuple[str, int], _: object) -> None:
        self.scheduler = dispatcher.scheduler
        self.dispatched.append(("attach", *arguments))


def told_as(name: str, log: list[Event]) -> Callable[[Any, tuple[Any, ...], Any], None]:
    return lambda _, arguments, found: log.append((name, arguments, found))


def after(patch: pytest.MonkeyPatch, owner: type, name: str, note: Callable[[Any, tuple[Any, ...], Any], None]) -> None:
    """`note(self, arguments, result)` after each call of the method."""
    original = getattr(owner, name)

    def call(self: Any, *arguments: Any) -> Any:
        found = original(self, *arguments)
        note(self, arguments, found)
        return found

    patch.setattr(owner, name, call)


def copied(request: GenerationRequest) -> tuple[Any, ...]:
    tokens, most = len(request.context_tokens), request.sampling.max_new_tokens
    return request.request_id, request.queue, request.policy, tokens, most, request.group, request.max_context_tokens


def rows_of(dispatcher: Dispatcher) -> dict[str, int]:
    return {state.name: state.max_rows for state in dispatcher.engines}


def decided(handed: Handed) -> Event:
    chunks = [
        (name, chunk.request_id, len(chunk.context_tokens), chunk.budget_tokens, chunk.stretch_tokens)
        for name, given in handed.chunks.items() for chunk in given
    ]  # fmt: skip
    return (*chunks, *handed.end_stretches)


def record(folder: Path) -> Recorded:
    """Three tasks, one of which may be stale, with chunks of five tokens and room for few rows."""
    tasks = (
        tiny_task("a"),
        tiny_task("b", max_staleness=1, group_size=2),
        tiny_task("c", steps=2, sampling={"max_new_tokens": 17}),
    )
    workers = {"layout": "shared", "executor": "thread", "environment_processes": 1}
    engine = {"max_rows": 6, "slot_tokens": 400, "pool_tokens": 400, "chunk_tokens": 5}
    settings = tiny_settings(folder, *tasks, workers=workers, engine=engine)
    recorded = Recorded(RunDirectory.create(folder / "runs", settings.name, effective_toml(settings)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "self_test", lambda *_: InvarianceReport(True, "as told"))
        recorded.watch(patch)
        assert run_file(settings, recorded.directory, show_progress=False) == "done"
    return recorded
