"""Adapters that managed tasks begin from: checkpoints of the tenant's own, or public ones. A path on the server is never taken.

Each is copied into the run's folder when the run is submitted: what happens to the checkpoint later changes nothing, also not for a
run that is taken up after a restart.
"""

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from plait.client.start_points import shape_conflicts, starts_of, taken_over, with_starts
from plait.config.problems import raise_problems
from plait.config.server import ServerSettings
from plait.config.task import TaskSettings
from plait.server.checkpoints import CheckpointStore
from plait.server.database import managed
from plait.server.database.tables import Checkpoint
from plait.server.errors import NotFound
from plait.server.folders import DataFolders
from plait.server.managed.submission import SOURCE, Submission, check_limits
from plait.state.records import holds_model
from plait.state.rundir import RunDirectory
from plait.state.start_point import keep_start, read_shape
from plait.types.errors import AdapterError, ConfigError, StateError

CheckSame = Callable[[str, str, str], None]
"""Raises ServiceError unless a checkpoint (its path, the name of its base model) is of a task's base model."""

log = logging.getLogger("plait.server")


class Starts:
    def __init__(self, checkpoints: CheckpointStore, server: ServerSettings, check_same: CheckSame) -> None:
        self._checkpoints, self._server, self._check_same = checkpoints, server, check_same

    @asynccontextmanager
    async def keeping(self, tenant_id: str, submission: Submission, directory: RunDirectory) -> AsyncIterator[Submission]:
        """The submission with copies in the run's folder, which goes if what follows fails.

        Raises ConfigError or ServiceError for a checkpoint that is not there, or that a task cannot begin from.
        """
        starts = starts_of(submission.settings)
        try:
            for task in submission.settings.tasks:
                if task.name in starts:
                    row = await self._keep(tenant_id, starts[task.name], directory.start_folder(task.name))
                    self._check_same(starts[task.name], row.base_model, submission.settings.model_of(task))
            yield self.kept(submission, directory)
        except BaseException:
            if starts:
                await asyncio.to_thread(shutil.rmtree, directory.path, ignore_errors=True)
            raise

    async def remove_unknown(self, folders: DataFolders) -> None:
        """What a killed server had copied for runs that it did not come to store. Only while nobody submits a run.

        A run that has begun stays, also where the database does not know it, being an older copy.
        """
        known = await self._checkpoints.database.run(managed.run_ids)
        for folder in await asyncio.to_thread(folders.of_runs):
            if folder.name not in known and not RunDirectory(folder).has_begun:
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _keep(self, tenant_id: str, path: str, target: Path) -> Checkpoint:
        try:
            return (await self._checkpoints.read(path, tenant_id, partial(_copy, target=target, path=path)))[0]
        except NotFound as error:
            raise ConfigError(
                f'start_from = "{path}": you have no such checkpoint.', "`plait checkpoints list` shows yours."
            ) from error

    def kept(self, submission: Submission, directory: RunDirectory) -> Submission:
        """Settings that name the copies, with their shapes. Raises PlaitError if they do not fit what tasks or server say."""
        starts = {task: str(directory.start_folder(task)) for task in starts_of(submission.settings)}
        settings = with_starts(submission.settings, starts)
        problems: list[str] = []
        tasks = tuple(_with_shape(task, f'tasks[{i}] (name "{task.name}")', problems) for i, task in enumerate(settings.tasks))
        settings = settings.model_copy(update={"tasks": tasks})
        raise_problems([*problems, *check_limits(settings, self._server)], SOURCE)
        return replace(submission, settings=settings)


def _with_shape(task: TaskSettings, key: str, problems: list[str]) -> TaskSettings:
    if task.start_from is None:
        return task
    shape = read_shape(Path(task.start_from))
    problems += [f"{key}.{text}" for text in shape_conflicts(task.lora, shape)]
    return task.model_copy(update={"lora": taken_over(task.lora, shape)})


def _copy(folder: Path, target: Path, path: str) -> None:
    """What is wrong with the server's files is told to the operator. FileNotFoundError if the folder goes."""
    if holds_model(folder):
        raise ConfigError(f'start_from = "{path}": it holds all weights.', "Name a checkpoint of an adapter.")
    try:
        read_shape(folder)
        keep_start(folder, target, path)
    except (AdapterError, StateError) as error:
        folder.stat()
        log.warning("checkpoint %s: %s", path, error)
        raise ConfigError(f'start_from = "{path}": it cannot be read as an adapter.', "Save another.") from error
