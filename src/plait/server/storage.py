"""What grows on the disk by itself: unnamed samplers of models that train on, and folders of managed runs.

- Of each model the latest `KEPT_SNAPSHOTS` unnamed samplers stay, and those that were sampled from within `IDLE_S` (a restart
  counts as use); the others go with their folders. All go when their session ends.
- The folder of a managed run is measured while it goes on and once when it has ended.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from plait.server.checkpoints import CheckpointStore
from plait.server.database import managed, samplers
from plait.server.database.database import Database

KEPT_SNAPSHOTS = 8
"""More than versions of one model are sampled from at a time, even by asynchronous clients."""
IDLE_S = 3600.0
MAX_A_TIME = 500


class Storage:
    """`last_used_s(sampler_id)` on the monotonic clock; `forget(sampler_id)` is told of those that go."""

    def __init__(
        self,
        database: Database,
        checkpoints: CheckpointStore,
        last_used_s: Callable[[str], float],
        forget: Callable[[str], None],
    ) -> None:
        self._database, self._checkpoints, self._last_used_s, self._forget = database, checkpoints, last_used_s, forget
        self._measured_s = 0.0

    async def tidy(self) -> None:
        await self._remove_old_snapshots()
        await self._measure_runs()

    async def _remove_old_snapshots(self) -> None:
        old = await self._database.run(samplers.old_snapshots, KEPT_SNAPSHOTS)
        idle = [name for name in old if time.monotonic() - self._last_used_s(name) >= IDLE_S][:MAX_A_TIME]
        for name in idle:
            self._forget(name)
        for folder in await self._database.run(samplers.delete_samplers, idle):
            await self._checkpoints.remove_folder(folder)

    async def _measure_runs(self) -> None:
        now_s = time.time()
        for run in await self._database.run(managed.runs_since, self._measured_s):
            size_bytes = await asyncio.to_thread(folder_bytes, Path(run.folder))
            await self._database.run(managed.set_run_size, run.run_id, size_bytes)
        self._measured_s = now_s


def folder_bytes(folder: Path) -> int:
    """Of all files in it; those that go meanwhile count nothing."""
    total = 0
    for parent, _, names in os.walk(folder):  # Path.rglob raises where a folder goes.
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(os.path.join(parent, name)).st_size
    return total
