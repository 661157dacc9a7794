"""The workers of a deployment's roles in worker groups that they share with others: the interface of `cluster.workers.Workers`.

- A worker here is a deployment of a group, named `OWNER/WORKER`; the owner's callbacks hear of `WORKER`.
- It is lost when its group's process is, and comes back with it.
"""

import asyncio
from collections.abc import Callable, Sequence

from plait.cluster.groups.worker_groups import WorkerGroups
from plait.cluster.messages import ROLLOUT, TRAIN, Configure, FromWorker, Ready, ToWorker
from plait.types.errors import WorkerFailure


class GroupedWorkers:
    def __init__(
        self,
        groups: WorkerGroups,
        owner: str,
        configurations: Sequence[Configure],
        on_message: Callable[[str, FromWorker], None],
        on_lost: Callable[[str, Sequence[str], WorkerFailure], None],
        on_ready: Callable[[str, Sequence[str]], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        self.groups, self.owner, self.configurations = groups, owner, configurations
        self._on_message, self._on_lost, self._on_ready, self._on_failed = on_message, on_lost, on_ready, on_failed
        self._attached: set[str] = set()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.configurations)

    @property
    def engine_names(self) -> tuple[str, ...]:
        """Of the workers that roll out, in the order of their numbers."""
        return tuple(c.name for c in self.configurations if ROLLOUT in c.roles)

    @property
    def pids(self) -> dict[str, int]:
        """Of the groups' processes that are up."""
        found = {name: self.groups.of(self._deployment(name)).pid for name in self.names}
        return {name: pid for name, pid in found.items() if pid is not None}

    async def start(self) -> Ready:
        """What the first reports stands for all."""
        starts = [self._start(configuration) for configuration in self.configurations]
        results = await asyncio.gather(*starts, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return next(result for result in results if isinstance(result, Ready))

    async def _start(self, configuration: Configure) -> Ready:
        deployment = self._deployment(configuration.name)
        ready = await self.groups.of(deployment).attach(deployment, configuration, _Listener(self, configuration))
        self._attached.add(configuration.name)
        return ready

    def send_to(self, worker: str, message: ToWorker) -> None:
        """While the worker is lost nothing is sent, and `on_ready` says when to send again."""
        if worker in self._attached:
            deployment = self._deployment(worker)
            self.groups.of(deployment).send(deployment, message)

    def train(self, message: ToWorker) -> None:
        """To the worker that trains."""
        self.send_to(next(c.name for c in self.configurations if TRAIN in c.roles), message)

    def lend_threads(self, trainer_is_idle: bool) -> None:
        """All that a group runs has all of its threads."""

    async def close(self) -> None:
        attached, self._attached = self._attached, set()
        deployments = [self._deployment(name) for name in attached]
        await asyncio.gather(*(self.groups.of(deployment).detach(deployment) for deployment in deployments))

    def _deployment(self, worker: str) -> str:
        return f"{self.owner}/{worker}"


class _Listener:
    """Hears of one worker."""

    def __init__(self, workers: GroupedWorkers, configuration: Configure) -> None:
        self._workers, self._name, self._roles = workers, configuration.name, configuration.roles

    def on_message(self, message: FromWorker) -> None:
        self._workers._on_message(self._name, message)

    def on_lost(self, failure: WorkerFailure) -> None:
        self._workers._on_lost(self._name, self._roles, failure)

    def on_ready(self) -> None:
        self._workers._on_ready(self._name, self._roles)

    def on_failed(self, error: Exception) -> None:
        self._workers._on_failed(error)
