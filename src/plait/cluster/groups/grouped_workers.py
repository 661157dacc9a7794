"""The workers of a job's deployments in a worker group that it shares with others: the interface of `cluster.workers.Workers`.

- A worker here is a deployment of a group, named `OWNER/WORKER`; the owner's callbacks hear of `WORKER`.
- It is lost when its group's process is, and comes back with it.
- All of them can be moved to another group (`group_move`), of which `on_move` is told; unless routes say where each is.
"""

import asyncio
from collections.abc import Callable, Sequence

from plait.cluster.all_of import all_of
from plait.cluster.groups.expected_bytes import expected_bytes
from plait.cluster.groups.group_move import PATIENCE_S, MoveListener, move
from plait.cluster.groups.worker_group import WorkerGroup
from plait.cluster.groups.worker_groups import WorkerGroups
from plait.cluster.messages import ROLLOUT, Configure, FromWorker, Ready, SubmitChunks, ToWorker
from plait.cluster.model_messages import ScorePrompt
from plait.placement.job import DEFAULT_SLO
from plait.types.errors import WorkerFailure


class GroupedWorkers:
    on_move: MoveListener | None = None
    """Set by who is to hear of moves; without one there are none."""

    def __init__(
        self,
        groups: WorkerGroups,
        owner: str,
        configurations: Sequence[Configure],
        on_message: Callable[[str, FromWorker], None],
        on_lost: Callable[[str, Sequence[str], WorkerFailure], None],
        on_ready: Callable[[str, Sequence[str]], None],
        on_failed: Callable[[Exception], None],
        *,
        max_slowdown: float = DEFAULT_SLO,
    ) -> None:
        self.groups, self.owner, self.configurations = groups, owner, configurations
        self._on_message, self._on_lost, self._on_ready, self.on_failed = on_message, on_lost, on_ready, on_failed
        self.max_slowdown = max_slowdown
        self._attached: set[str] = set()
        self._move: asyncio.Task[bool] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.configurations)

    @property
    def engine_names(self) -> tuple[str, ...]:
        """Of the workers that roll out, in the order of their numbers."""
        return tuple(c.name for c in self.configurations if ROLLOUT in c.roles)

    @property
    def moving_engines(self) -> tuple[str, ...]:
        """Those that are elsewhere after a move: all."""
        return self.engine_names

    @property
    def deployments(self) -> tuple[str, ...]:
        return tuple(f"{self.owner}/{name}" for name in self.names)

    @property
    def group(self) -> WorkerGroup:
        """Where the first is, and all of them if they can be moved."""
        return self.groups.of(self.deployments[0])

    def group_of(self, worker: str) -> WorkerGroup:
        return self.groups.of(f"{self.owner}/{worker}")

    @property
    def pids(self) -> dict[str, int]:
        """Of the groups' processes that are up."""
        found = {name: self.group_of(name).pid for name in self.names}
        return {name: pid for name, pid in found.items() if pid is not None}

    async def start(self) -> Ready:
        """What the first reports stands for all."""
        num_bytes = sum(expected_bytes(configuration) for configuration in self.configurations)
        self.groups.join(self.owner, self, num_bytes, self.max_slowdown)
        return (await all_of([self._start(configuration) for configuration in self.configurations]))[0]

    async def _start(self, configuration: Configure) -> Ready:
        group, deployment = self.group_of(configuration.name), f"{self.owner}/{configuration.name}"
        ready = await group.attach(deployment, configuration, self.listener(configuration, group))
        self._attached.add(configuration.name)
        return ready

    def listener(self, configuration: Configure, group: WorkerGroup) -> "DeploymentListener":
        """Of one deployment at this group."""
        return DeploymentListener(self, configuration, group)

    def send_to(self, worker: str, message: ToWorker) -> None:
        """While the worker is lost nothing is sent, and `on_ready` says when to send again. While it moves no new sampling is."""
        if self.is_moving and isinstance(message, SubmitChunks | ScorePrompt):
            return
        if worker in self._attached:
            self.group_of(worker).send(f"{self.owner}/{worker}", message)

    def lend_threads(self, trainer_is_idle: bool) -> None:
        """All that a group runs has all of its threads."""

    is_moving = False
    """What was sent is finished at the old group, and nothing is begun."""
    failure: Exception | None = None
    """Of a group where it is not, or not yet."""

    async def move_to(self, group: str) -> bool:
        """Be at this group from then on; False, and all is as it was, if a process was lost meanwhile. Raises PlaitError if the
        workers do not come up there."""
        moving = self._move = asyncio.create_task(move(self, self.groups.named(group)))
        try:
            return await moving
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is not None and caller.cancelling():
                raise
            return False  # By `close`: whoever wanted the move goes on.
        finally:
            self._move = None

    async def close(self) -> None:
        try:
            self.groups.on_leave()
        finally:
            await self._leave()

    async def _leave(self) -> None:
        if self._move is not None:
            self._move.cancel()
            await asyncio.gather(self._move, return_exceptions=True)
        attached, self._attached = self._attached, set()
        await all_of([self.group_of(name).detach(f"{self.owner}/{name}", PATIENCE_S) for name in attached])
        self.groups.leave(self.owner)


class DeploymentListener:
    """Hears of one deployment, as long as it is at this group."""

    def __init__(self, workers: GroupedWorkers, configuration: Configure, group: WorkerGroup) -> None:
        self._workers, self._name, self._roles = workers, configuration.name, configuration.roles
        self._group = group

    @property
    def _is_heard(self) -> bool:
        return self._workers.group_of(self._name) is self._group

    def on_message(self, message: FromWorker) -> None:
        if self._is_heard:
            self._workers._on_message(self._name, message)

    def on_lost(self, failure: WorkerFailure) -> None:
        if self._is_heard:
            self._workers._on_lost(self._name, self._roles, failure)

    def on_ready(self) -> None:
        if self._is_heard:
            self._workers._on_ready(self._name, self._roles)

    def on_failed(self, error: Exception) -> None:
        if self._is_heard:
            self._workers.on_failed(error)
        else:
            self._workers.failure = error
