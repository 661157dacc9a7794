"""Workers as actors of a Ray cluster, one in each bundle of one placement group.

- A bundle is a worker's share of a node. When the node is lost, Ray looks for room for the bundle elsewhere, on nodes that joined
  later too; until there is some, the replacement waits, and the log says for what.
- All nodes must have the same Plait, and see the folder of the run or of the service as the controller does.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import plait
from plait.cluster.executors.carrier import Carrier, WorkerNeeds, WorkerProgram
from plait.cluster.executors.ray_actor import Started, WorkerActor
from plait.cluster.executors.ray_carrier import RayCarrier, describe
from plait.cluster.executors.ray_session import connect, disconnect, import_ray, restore_sigterm
from plait.cluster.executors.shared_folder import FolderProbe, remove_probe, write_probe
from plait.types.errors import ConfigError, WorkerFailure

PATIENCE_S = 10.0
"""A worker that has no node by then is spoken of, and again after each of these."""
MORE_PATIENCE_S = 60.0

Result = TypeVar("Result")
log = logging.getLogger("plait.cluster")


class RayExecutor:
    """`needs`: of every worker that is going to be started, by name. `shared_folder` is checked on each worker's node."""

    def __init__(self, address: str, strategy: str, needs: Mapping[str, WorkerNeeds], shared_folder: Path | None = None) -> None:
        self._address, self._strategy, self._needs, self._folder = address, strategy.upper(), dict(needs), shared_folder
        self._opening: asyncio.Task[None] | None = None
        self._carriers: list[RayCarrier] = []
        """Those that `close` may have to wait for."""
        self._calls: set[asyncio.Future[Any]] = set()
        """Into Ray, in threads. None may be under way when the connection is closed: Ray ends the process for that."""
        self._group: Any = None
        self._probe: FolderProbe | None = None

    async def start(self, program: WorkerProgram) -> Carrier:
        await self._open()
        actor = await asyncio.shield(self._call(self._make_actor, program))
        try:
            started: Started = await self._wait(program, actor.start.remote())
            self._check(program, started)
        except BaseException as error:
            self._call(_kill, actor)
            if isinstance(error, import_ray().exceptions.RayError):
                raise WorkerFailure(f"worker {program.name!r} {describe(error)}") from error
            raise
        carrier = RayCarrier(program.name, actor, started, lambda: self._call(_kill, actor))
        self._carriers = [*(one for one in self._carriers if not one.is_over), carrier]
        return carrier

    async def close(self) -> None:
        if self._opening is None:
            return
        await asyncio.gather(self._opening, return_exceptions=True)
        if self._opening.cancelled() or self._opening.exception() is not None:
            return
        await asyncio.gather(*(carrier.close() for carrier in self._carriers))
        await asyncio.gather(*self._calls, return_exceptions=True)
        await asyncio.to_thread(self._close)
        restore_sigterm()

    def _call(self, function: Callable[..., Result], *arguments: object) -> "asyncio.Future[Result]":
        call = asyncio.get_running_loop().run_in_executor(None, function, *arguments)
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return call

    # ---- the cluster

    async def _open(self) -> None:
        """Once, for all who start workers at the same time."""
        if self._opening is None:
            self._opening = asyncio.create_task(asyncio.to_thread(self._connect))
        await asyncio.shield(self._opening)
        restore_sigterm()

    def _connect(self) -> None:
        connect(self._address, sum(needs.cpus for needs in self._needs.values()))
        try:
            from ray.util.placement_group import placement_group

            self._probe = None if self._folder is None else write_probe(self._folder)
            self._group = placement_group([_resources(needs) for needs in self._needs.values()], strategy=self._strategy)
        except BaseException:
            disconnect()
            raise

    def _close(self) -> None:
        from ray.util.placement_group import remove_placement_group

        remove_placement_group(self._group)
        if self._probe is not None:
            remove_probe(self._probe)
        disconnect()

    # ---- one worker

    def _make_actor(self, program: WorkerProgram) -> Any:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        needs = self._needs[program.name]
        bundle = PlacementGroupSchedulingStrategy(self._group, list(self._needs).index(program.name))
        actor_class = import_ray().remote(WorkerActor).options(
            num_cpus=needs.cpus, num_gpus=needs.gpus, scheduling_strategy=bundle,
            runtime_env={"env_vars": dict(program.environment)}, max_restarts=0, max_task_retries=0,
        )  # fmt: skip
        return actor_class.remote(program, self._probe)

    async def _wait(self, program: WorkerProgram, started: Awaitable[Result]) -> Result:
        """Says what is missing while there is no room."""
        waiting, patience_s = asyncio.ensure_future(started), PATIENCE_S
        try:
            while not (await asyncio.wait([waiting], timeout=patience_s))[0]:
                log.warning("%s", await asyncio.shield(self._call(self._describe_wait, program.name)))
                patience_s = MORE_PATIENCE_S
            return waiting.result()
        finally:
            waiting.cancel()

    def _describe_wait(self, name: str) -> str:
        from ray.util.placement_group import placement_group_table

        ray = import_ray()
        if placement_group_table(self._group)["state"] == "CREATED":
            return f"worker {name!r} has a node of the Ray cluster, which is slow to start it"
        wanted, free = _resources(self._needs[name]), ray.available_resources()
        alive = sum(node["Alive"] for node in ray.nodes())
        return (
            f"worker {name!r} waits for a node of the Ray cluster with {_describe(wanted)} free; {alive} nodes are there, with "
            f"{_describe({kind: free.get(kind, 0) for kind in wanted})} free in all"
        )

    def _check(self, program: WorkerProgram, started: Started) -> None:
        if started.version != plait.__version__:
            raise ConfigError(
                f"node {started.host} has Plait {started.version}, the controller {plait.__version__}.",
                "Install the same version on all nodes.",
            )
        if started.problem:
            raise ConfigError(
                f"worker {program.name!r} cannot work: {started.problem}",
                "Put runs and data on a file system that all nodes mount at the same path.",
            )


def _kill(actor: Any) -> None:
    """Also where it is long gone."""
    ray = import_ray()
    with contextlib.suppress(ray.exceptions.RayError):
        ray.kill(actor)


def _resources(needs: WorkerNeeds) -> dict[str, float]:
    amounts = {"CPU": float(needs.cpus), "GPU": float(needs.gpus)}
    return {kind: amount for kind, amount in amounts.items() if amount}


def _describe(resources: Mapping[str, float]) -> str:
    return " and ".join(f"{amount:g} {kind}" for kind, amount in resources.items())
