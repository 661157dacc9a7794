"""Which kind of workers the settings ask for: processes of their own, or a group that deployments share. Torch-free."""

import os
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, cast

from plait.cluster.executors.carrier import Executor, WorkerNeeds
from plait.cluster.executors.choice import executor_for, make_executor
from plait.cluster.groups.group_placement import GroupPlacement
from plait.cluster.groups.grouped_workers import GroupedWorkers
from plait.cluster.groups.messages import ConfigureGroup
from plait.cluster.groups.placement_loop import PlacementLoop
from plait.cluster.groups.router import Router
from plait.cluster.groups.shared_training import SharedTraining
from plait.cluster.groups.worker_groups import WorkerGroups
from plait.cluster.messages import TRAIN, Configure
from plait.cluster.workers import MakeWorkers, Workers
from plait.config.run import WorkerSettings
from plait.observe.events import GroupSample, JobMoved, Note
from plait.placement.job import DEFAULT_SLO

GROUP = "group"
PARKED_FOLDER = "parked"
"""Within a run's folder, or a server's."""
MEMORY_FOLDER = Path("/dev/shm")
"""Where there is none (macOS), temporary files take its place."""


class WorkerFactory:
    """Makes the workers of all deployments of a run or a service. `groups` are None unless workers are multiplexed."""

    def __init__(self, settings: WorkerSettings, device: str, folder: Path | None = None) -> None:
        """`folder`: for what finds no room in main memory, if `workers.disk_bytes` says so."""
        self._settings, self._folder = settings, folder
        self.groups = make_groups(settings, device, folder) if settings.is_multiplexed else None

    async def aclose(self) -> None:
        """After all that it made workers for are closed."""
        if self.groups is not None:
            await self.groups.close()

    def of(self, owner: str, max_slowdown: float | None = None) -> MakeWorkers | None:
        """What makes the workers of `owner`, whose name nobody else has; None: it gets workers of its own.

        `max_slowdown`: its own bound; None: that of all.
        """
        if self.groups is None:
            return None
        slowdown = self._settings.max_slowdown if max_slowdown is None else max_slowdown
        if self._settings.layout == "multiplexed":
            return grouped(self.groups, owner, slowdown)
        return cast(MakeWorkers, partial(_make_shared_training, self.groups, owner, slowdown, self._make_executor))

    def _make_executor(self, configurations: Sequence[Configure]) -> Executor:
        return make_executor(self._settings, configurations, shared_folder(self._folder))

    @asynccontextmanager
    async def placing(self, emit: Callable[[GroupSample | JobMoved | Note], None]) -> AsyncIterator[None]:
        """Jobs are moved to where they are to be, and `emit` is told how groups stand."""
        async with PlacementLoop(self.groups, emit) if self.groups is not None else nullcontext():
            yield


def grouped(groups: WorkerGroups, owner: str, max_slowdown: float = DEFAULT_SLO) -> MakeWorkers:
    """What makes the workers of `owner` in these groups."""
    return cast(MakeWorkers, partial(_make_grouped, groups, owner, max_slowdown))


def _make_grouped(
    groups: WorkerGroups,
    owner: str,
    max_slowdown: float,
    configurations: Sequence[Configure],
    max_restarts: int,
    *told: Any,
) -> GroupedWorkers:
    """`told`: the four callbacks of `Workers`. The groups count restarts themselves."""
    return GroupedWorkers(groups, owner, configurations, *told, max_slowdown=max_slowdown)


def _make_shared_training(
    groups: WorkerGroups,
    owner: str,
    max_slowdown: float,
    make_own: Callable[[Sequence[Configure]], Executor],
    configurations: Sequence[Configure],
    max_restarts: int,
    *told: Any,
) -> SharedTraining:
    """`told`: the four callbacks of `Workers`."""
    engines = [one for one in configurations if TRAIN not in one.roles]
    trainers = [one for one in configurations if TRAIN in one.roles]
    rollouts = Workers(engines, max_restarts, *told, executor=make_own(engines))
    training = GroupedWorkers(groups, owner, trainers, *told, max_slowdown=max_slowdown)
    return SharedTraining(rollouts, training)


def make_groups(settings: WorkerSettings, device: str, folder: Path | None = None) -> WorkerGroups:
    """Each with the threads of all that it does, and with the whole of the budgets."""
    assert settings.device_bytes is not None, "checked with the settings"
    configured = [
        ConfigureGroup(
            name=name, threads=_threads(settings), device=device,
            device_bytes=settings.device_bytes, host_bytes=settings.host_bytes, host_folder=str(memory_folder()),
            folder="" if folder is None else str(folder / name), disk_bytes=0 if folder is None else settings.disk_bytes,
        )
        for name in group_names(settings.groups)
    ]  # fmt: skip
    names = [one.name for one in configured]
    placement = GroupPlacement(names, settings.device_bytes, settings.host_bytes, settings.placement)
    needs = {one.name: WorkerNeeds(one.threads, int(one.device == "cuda")) for one in configured}
    executor = executor_for(settings, needs, shared_folder(folder))
    return WorkerGroups(configured, Router(default=names[0]), settings.order, settings.max_restarts, placement, executor=executor)


def shared_folder(folder: Path | None) -> Path | None:
    """Of the run or the server: all that workers read and write."""
    return None if folder is None else folder.parent


def _threads(settings: WorkerSettings) -> int:
    return settings.train_threads + (settings.rollout_threads if settings.layout == "multiplexed" else 0)


def group_names(num_groups: int) -> list[str]:
    return [GROUP] if num_groups == 1 else [f"{GROUP}-{number}" for number in range(num_groups)]


def memory_folder() -> Path:
    """This user's, shared by all of its groups on this machine."""
    parent = MEMORY_FOLDER if os.access(MEMORY_FOLDER, os.W_OK) else Path(tempfile.gettempdir())
    return parent / f"plait-{os.getuid()}"
