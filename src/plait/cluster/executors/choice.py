"""The executor that the settings name."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from plait.cluster.executors.carrier import Executor, WorkerNeeds
from plait.cluster.executors.process import ProcessExecutor
from plait.cluster.messages import Configure
from plait.config.run import WorkerSettings


def make_executor(settings: WorkerSettings, configured: Sequence[Configure], shared_folder: Path | None) -> Executor:
    """`shared_folder` must be the same for all workers, wherever they run."""
    needs = {one.name: WorkerNeeds(one.threads * one.train_ranks, one.train_ranks * (one.device == "cuda")) for one in configured}
    return executor_for(settings, needs, shared_folder)


def executor_for(settings: WorkerSettings, needs: Mapping[str, WorkerNeeds], shared_folder: Path | None) -> Executor:
    """`needs`: of all that will be started, by name."""
    if settings.executor == "thread":
        from plait.cluster.executors.thread import ThreadExecutor

        return ThreadExecutor()
    if settings.executor == "ray":
        from plait.cluster.executors.ray_executor import RayExecutor

        return RayExecutor(settings.ray_address, settings.ray_placement, needs, shared_folder)
    return ProcessExecutor()
