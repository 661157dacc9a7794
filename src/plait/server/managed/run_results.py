"""What managed runs have come to, under way or ended: listed, shown, streamed, reported. A stranger finds nothing."""

import asyncio
import time
import tomllib
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

from plait.client.reports import write_run_report
from plait.observe.log import read_events
from plait.observe.summary import RunSummary
from plait.server.database import managed
from plait.server.database.database import Database
from plait.server.database.tables import ManagedRun
from plait.server.errors import NotFound, ServiceError
from plait.server.managed.event_stream import Signal, start_of, stream_events
from plait.server.managed.live_run import LiveRun
from plait.server.managed.views import RunList, RunView, run_view, task_views
from plait.state.rundir import RunDirectory


class RunResults:
    """`live`: the runs that have not ended, by id."""

    def __init__(self, database: Database, live: Mapping[str, LiveRun], is_closing: Callable[[], bool]) -> None:
        self._database, self._live, self._is_closing = database, live, is_closing

    async def row(self, run_id: str, tenant_id: str) -> ManagedRun:
        """Raises NotFound."""
        row = await self._database.run(lambda session: managed.get_run(session, run_id, tenant_id))
        if row is None:
            raise NotFound("run", run_id)
        return row

    async def show(self, run_id: str, tenant_id: str) -> RunView:
        row = await self.row(run_id, tenant_id)
        run = self._live.get(run_id)
        if run is not None:
            return live_view(run, row)
        view, directory = run_view(row), RunDirectory(Path(row.folder))
        summary = await asyncio.to_thread(_read_summary, directory)
        view.tasks = task_views(_task_names(row), summary, time.time())
        return view

    async def list(self, tenant_id: str, limit: int, offset: int) -> RunList:
        """Newest first, without their tasks."""
        rows, total = await self._database.run(lambda session: managed.list_runs(session, tenant_id, limit, offset))
        states = {run_id: run.state for run_id, run in self._live.items()}
        return RunList(runs=[run_view(row, states.get(row.run_id)) for row in rows], total=total)

    async def events(
        self, run_id: str, tenant_id: str, last_event_id: str | None, follow: bool = True
    ) -> AsyncIterator[bytes] | None:
        """None if the reader has seen them all, and none will come. `follow`: wait for more until the run ends. Raises NotFound."""
        row = await self.row(run_id, tenant_id)
        path, run = RunDirectory(Path(row.folder)).events, self._live.get(run_id)
        start = await asyncio.to_thread(start_of, last_event_id, path)
        if run is None and last_event_id and path.exists() and start == path.stat().st_size:
            return None
        signal = run.signal if run is not None else Signal()
        return stream_events(path, start, signal, lambda: self._ended(run_id, row, run, follow))

    def _ended(self, run_id: str, row: ManagedRun, run: LiveRun | None, follow: bool) -> str | None:
        if self._is_closing():
            return "interrupted"
        if run_id in self._live and follow:
            return None
        return run.state if run is not None else row.state

    async def directory(self, run_id: str, tenant_id: str) -> RunDirectory:
        """Of a run that has begun. Raises NotFound."""
        directory = RunDirectory(Path((await self.row(run_id, tenant_id)).folder))
        if not directory.events.exists():
            raise NotFound("result of run", run_id)
        return directory

    async def task_name(self, run_id: str, tenant_id: str, task: str | None) -> str:
        """The one that is named, or the only one. Raises NotFound or ServiceError."""
        names = _task_names(await self.row(run_id, tenant_id))
        if task is None and len(names) > 1:
            raise ServiceError(f"run {run_id!r} has the tasks {', '.join(names)}.", "Name one: ?task=...")
        if task not in (None, *names):
            raise NotFound("task", str(task))
        return task or names[0]

    async def report(self, run_id: str, tenant_id: str) -> Path:
        """As of now. Raises NotFound."""
        return await asyncio.to_thread(write_run_report, await self.directory(run_id, tenant_id))


def live_view(run: LiveRun, row: ManagedRun) -> RunView:
    view = run_view(row, run.state)
    view.tasks = task_views(run.task_names, run.summary, time.time())
    return view


def _task_names(row: ManagedRun) -> tuple[str, ...]:
    return tuple(task["name"] for task in tomllib.loads(row.toml)["tasks"])


def _read_summary(directory: RunDirectory) -> RunSummary:
    return RunSummary(read_events(directory.events) if directory.events.exists() else ())
