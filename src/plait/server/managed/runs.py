"""All managed runs of the server: submitted, queued, started, looked at, steered, and taken up again after a restart.

A run is known by its id to its own tenant only.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from plait.cluster.messages import Ready
from plait.config.server import ServerSettings
from plait.operations.quotas import REMEDY, Quota, Quotas
from plait.server.bases import Base, Bases
from plait.server.checkpoints import CheckpointStore
from plait.server.database import managed
from plait.server.database.database import Database
from plait.server.database.errors import DatabaseError
from plait.server.database.tables import ManagedRun
from plait.server.errors import ServiceError, TooMany
from plait.server.folders import DataFolders
from plait.server.gate import Gate
from plait.server.managed.live_run import OVER, LiveRun, RunState
from plait.server.managed.metered_rollout import MeteredRollout
from plait.server.managed.run_results import RunResults, live_view
from plait.server.managed.schedule import next_runs
from plait.server.managed.shared_compute import SharedCompute, Switchboard
from plait.server.managed.starts import Starts
from plait.server.managed.submission import Submission, read_submission
from plait.server.managed.uploads import Uploads
from plait.server.managed.views import RunView
from plait.server.usage import UsageMeter
from plait.state.rundir import RunDirectory
from plait.tasks.bases_compute import BasesCompute
from plait.tasks.identity import RunIdentity
from plait.types.errors import PlaitError

DATABASE_RETRY_S = 1.0
END_S = 10.0
"""How long whoever cancels a run waits for its end to be stored."""

log = logging.getLogger("plait.server")


class ManagedRuns:
    def __init__(
        self,
        settings: ServerSettings,
        bases: Bases,
        database: Database,
        quotas: Quotas,
        usage: UsageMeter,
        folders: DataFolders,
        gate: Gate,
        count_live: Callable[[str], Awaitable[int]],
    ) -> None:
        """`count_live`: all adapters of a tenant that are open, these runs' among them."""
        self._settings, self._bases, self._database = settings, bases, database
        self._quotas, self._usage = quotas, usage
        self._folders, self._gate, self._count_live = folders, gate, count_live
        self._watching: asyncio.Task[None] | None = None
        self._switchboards = {base.name: Switchboard(base.backend, self._interrupt) for base in bases}
        self._live: dict[str, LiveRun] = {}
        self._is_closing = False
        self.results = RunResults(database, self._live, lambda: self._is_closing)
        self._submitting = asyncio.Lock()
        self._starts = Starts(CheckpointStore(database), settings, bases.check_same)
        self.uploads = Uploads(database, folders, lambda tenant: quotas.limits(tenant).stored_bytes, self._users_of_upload)

    # ---- life of the server

    async def start(self, ready: Mapping[str, Ready]) -> None:
        """Take up what a former server left unfinished. `ready`: what the workers of each base model have told."""
        for name, switchboard in self._switchboards.items():
            switchboard.ready = ready[name]
        async with self._submitting:
            await self._starts.remove_unknown(self._folders)
        for row in await self._database.run(managed.unfinished_runs):
            await self._take_up(row)
        self._watching = asyncio.create_task(self._end_streams_in_time())
        self._start_next()

    async def _take_up(self, row: ManagedRun) -> None:
        try:
            submission = self._starts.kept(read_submission(row.toml, self._settings), RunDirectory(Path(row.folder)))
        except PlaitError as error:  # The operator allows less than before.
            log.error("run %s cannot go on: %s", row.run_id, error)
            await self._store_state(row.run_id, RunState.FAILED)
            return
        run = self._adopt(row, submission)
        if row.state == RunState.PAUSED and not run.directory.events.exists():
            run.act("pause", None)

    async def _end_streams_in_time(self) -> None:
        """When the server begins to stop, nobody is kept waiting for events."""
        await self._gate.wait_until_closed()
        self._end_streams()

    def _end_streams(self) -> None:
        self._is_closing = True
        for run in self._live.values():
            run.signal.send()

    def _interrupt(self) -> None:
        self._end_streams()
        for run in self._live.values():
            run.interrupt()

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        works = [run.work for run in self._live.values() if run.work is not None]
        self._interrupt()
        await asyncio.gather(*works, return_exceptions=True)

    def num_tasks(self, tenant_id: str) -> int:
        """Adapters of the tenant's runs that have not ended."""
        return sum(len(run.task_names) for run in self._live.values() if run.tenant_id == tenant_id)

    @property
    def num_running(self) -> int:
        return sum(run.work is not None for run in self._live.values())

    @property
    def num_queued(self) -> int:
        return len(self._live) - self.num_running

    # ---- submitting

    async def submit(self, tenant_id: str, text: str) -> RunView:
        """Raises ConfigError for a task file that is not taken, TooMany if the tenant may have no more adapters."""
        submission = read_submission(text, self._settings)
        await self.uploads.files(tenant_id, submission.uploads)
        run_id = f"{submission.settings.name}-{secrets.token_hex(6)}"
        directory = RunDirectory(self._folders.runs(tenant_id) / run_id)
        row = ManagedRun(
            run_id=run_id, tenant_id=tenant_id, state=RunState.QUEUED, toml=text, folder=str(directory.path), created_s=time.time()
        )  # fmt: skip
        async with self._submitting, self._starts.keeping(tenant_id, submission, directory) as submission:
            await self._check_live_adapters(tenant_id, len(submission.settings.tasks))
            await self._database.run(lambda session: managed.add_run(session, row))
            run = self._adopt(row, submission)
        self._start_next()
        return live_view(run, row)

    async def _check_live_adapters(self, tenant_id: str, num_new: int) -> None:
        limit = self._quotas.limits(tenant_id).live_adapters
        if limit is None:
            return
        num_live = await self._count_live(tenant_id)
        if num_live + num_new > limit:
            raise TooMany(
                f"live_adapters would be {num_live + num_new}, and {limit} is the limit of this tenant.",
                REMEDY[Quota.LIVE_ADAPTERS],
            )

    def _adopt(self, row: ManagedRun, submission: Submission) -> LiveRun:
        run = LiveRun(RunIdentity(row.tenant_id, row.run_id), submission, RunDirectory(Path(row.folder)))
        self._live[row.run_id] = run
        return run

    def _users_of_upload(self, tenant_id: str, name: str) -> Sequence[str]:
        return [run.run_id for run in self._live.values() if run.tenant_id == tenant_id and name in run.uploads]

    # ---- running

    def _start_next(self) -> None:
        """Fill the places that are free. One that is paused takes none."""
        if self._is_closing:
            return
        waiting = [(run.run_id, run.tenant_id) for run in self._live.values() if run.work is None and not run.is_held]
        running = [run.tenant_id for run in self._live.values() if run.work is not None and run.state != RunState.PAUSED]
        for run_id in next_runs(waiting, running):
            run = self._live[run_id]
            run.work = asyncio.create_task(self._carry_out(run), name=f"run {run_id}")

    async def _carry_out(self, run: LiveRun) -> None:
        try:
            await self._store_state(run.run_id, RunState.RUNNING if run.state == RunState.QUEUED else run.state)
            if await self._run(run):
                await self._end(run)
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("run %s stands still until the server is started again", run.run_id)
        finally:
            self._start_next()

    async def _run(self, run: LiveRun) -> bool:
        settings = run.settings
        computes = {name: self._compute(run, self._bases.of(name)) for name in settings.used_models}
        models = {task.name: settings.model_of(task) for task in settings.tasks}
        tokenizers = {task: self._bases.of(name).tokenizer for task, name in models.items()}
        return await run.run(
            lambda names: self.uploads.files(run.tenant_id, names), BasesCompute(computes, models), tokenizers
        )  # fmt: skip

    def _compute(self, run: LiveRun, base: Base) -> SharedCompute:
        rollout = MeteredRollout(base.backend.rollout, self._quotas, self._usage, run.tenant_id, base.name)
        return SharedCompute(self._switchboards[base.name], run.identity, rollout, self._usage, base.name)

    async def _end(self, run: LiveRun) -> None:
        await self._store_state(run.run_id, run.state)
        self._live.pop(run.run_id, None)
        run.signal.send()

    async def _store_state(self, run_id: str, state: RunState) -> None:
        """However long the database is away."""
        ended_s = time.time() if state in OVER else None
        while True:
            try:
                await self._database.run(lambda session: managed.set_run_state(session, run_id, state, ended_s))
                return
            except DatabaseError as error:
                log.error("cannot store the state of run %s: %s", run_id, error)
                await asyncio.sleep(DATABASE_RETRY_S)

    # ---- steering

    async def act(self, action: str, run_id: str, tenant_id: str, task: str | None) -> RunView:
        """Pause, resume or cancel. Raises NotFound, or ServiceError if it cannot be done now."""
        row = await self.results.row(run_id, tenant_id)
        run = self._live.get(run_id)
        if run is None:
            raise ServiceError(f"run {run_id!r} is {row.state}.", f"There is nothing to {action}.")
        run.act(action, task)
        await self._after(run)
        return await self.results.show(run_id, tenant_id)

    async def _after(self, run: LiveRun) -> None:
        if run.work is None and run.is_given_up:
            run.state = RunState.CANCELLED
            await self._end(run)
        elif run.work is not None and run.is_given_up:
            await asyncio.wait((run.work,), timeout=END_S)
        elif run.state not in OVER:
            await self._store_state(run.run_id, run.state)
        self._start_next()
