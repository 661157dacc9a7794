"""Which kind of workers the settings ask for: processes of their own, or a group that deployments share. Torch-free."""

import os
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import cast

from plait.cluster.groups.grouped_workers import GroupedWorkers
from plait.cluster.groups.messages import ConfigureGroup
from plait.cluster.groups.router import Router
from plait.cluster.groups.worker_groups import WorkerGroups
from plait.cluster.messages import Configure, FromWorker
from plait.cluster.workers import MakeWorkers
from plait.config.run import WorkerSettings
from plait.types.errors import WorkerFailure

GROUP = "group"
PARKED_FOLDER = "parked"
"""Within a run's folder, or a server's."""
MEMORY_FOLDER = Path("/dev/shm")
"""Where there is none (macOS), temporary files take its place."""


class WorkerFactory:
    """Makes the workers of all deployments of a run or a service. `groups` are None unless workers are multiplexed."""

    def __init__(self, settings: WorkerSettings, device: str, folder: Path | None = None) -> None:
        """`folder`: for what finds no room in main memory, if `workers.disk_bytes` says so."""
        self.groups = make_groups(settings, device, folder) if settings.layout == "multiplexed" else None

    def of(self, owner: str) -> MakeWorkers | None:
        """What makes the workers of `owner`, whose name nobody else has; None: it gets workers of its own."""
        return None if self.groups is None else grouped(self.groups, owner)


def grouped(groups: WorkerGroups, owner: str) -> MakeWorkers:
    """What makes the workers of `owner` in these groups."""
    return cast(MakeWorkers, partial(_make_grouped, groups, owner))


def _make_grouped(
    groups: WorkerGroups,
    owner: str,
    configurations: Sequence[Configure],
    max_restarts: int,
    on_message: Callable[[str, FromWorker], None],
    on_lost: Callable[[str, Sequence[str], WorkerFailure], None],
    on_ready: Callable[[str, Sequence[str]], None],
    on_failed: Callable[[Exception], None],
) -> GroupedWorkers:
    """The groups count restarts themselves."""
    return GroupedWorkers(groups, owner, configurations, on_message, on_lost, on_ready, on_failed)


def make_groups(settings: WorkerSettings, device: str, folder: Path | None = None) -> WorkerGroups:
    """One group for everything, with the threads of all."""
    assert settings.device_bytes is not None, "checked with the settings"
    configured = ConfigureGroup(
        name=GROUP, threads=settings.rollout_threads + settings.train_threads, device=device,
        device_bytes=settings.device_bytes, host_bytes=settings.host_bytes, host_folder=str(memory_folder()),
        folder="" if folder is None else str(folder / GROUP), disk_bytes=0 if folder is None else settings.disk_bytes,
    )  # fmt: skip
    return WorkerGroups([configured], Router(default=GROUP), settings.order, settings.max_restarts)


def memory_folder() -> Path:
    """This user's, shared by all of its groups on this machine."""
    parent = MEMORY_FOLDER if os.access(MEMORY_FOLDER, os.W_OK) else Path(tempfile.gettempdir())
    return parent / f"plait-{os.getuid()}"
