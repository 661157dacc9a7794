"""A worker group as its controllers see it: deployments come and go, messages go in, answers come out. Torch-free.

- Its process (or actor, or thread) starts with the first deployment and ends with the last.
- When it is lost, every deployment hears of it, it is replaced, and each hears when it is back: up to `max_restarts` times within
  `RESTART_WINDOW_S`, replacements that are lost as they start included. What was sent and not answered is gone; nothing is sent
  until it is back.
- An error in what is made of its frames, or of a listener, is no loss of the process: `on_failed` is told.
- Decisions are the dispatcher's. What engines report has the group's totals with it (`observe.group_counters`).
"""

import asyncio
import time
from collections.abc import Callable

import msgspec

from plait.cluster.executors.carrier import Executor
from plait.cluster.executors.process import ProcessExecutor
from plait.cluster.groups.departures import Departures
from plait.cluster.groups.dispatcher import GroupDispatcher
from plait.cluster.groups.group_demand import GroupDemand
from plait.cluster.groups.group_link import GroupLink
from plait.cluster.groups.group_member import GroupListener, Member
from plait.cluster.groups.messages import CallOver, ConfigureGroup, FromDeployment, FromGroup, Prefetched, Switched, Unhosted
from plait.cluster.messages import Configure, EngineStats, FromWorker, Ready, StartFailed, Starting, ToWorker
from plait.cluster.restarts import Restarts
from plait.scheduling.orders import Order
from plait.types.errors import ConfigError, PlaitError, WorkerFailure


class WorkerGroup:
    def __init__(
        self, settings: ConfigureGroup, order: Order, max_restarts: int, clock: Callable[[], float] = time.monotonic,
        demand: GroupDemand | None = None, executor: Executor | None = None,
    ) -> None:  # fmt: skip
        """`executor`, which is not closed here, carries it; None: a child process."""
        self.settings, self.dispatcher = settings, GroupDispatcher(order, settings.device_bytes, demand)
        self._clock, self._restarts = clock, Restarts(max_restarts, clock)
        self._executor = executor or ProcessExecutor()
        self._members: dict[str, Member] = {}
        self._departures = Departures()
        self._draining: dict[str, asyncio.Future[None]] = {}
        self._link: GroupLink | None = None
        self._changing = asyncio.Lock()
        """The process comes up, or ends."""
        self._restarting: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """None while there is no process."""
        return self._link.pid if self._link is not None else None

    @property
    def deployments(self) -> tuple[str, ...]:
        """Those that are here, or are to come up."""
        return tuple(self._members)

    def is_up(self, deployment: str) -> bool:
        member = self._members.get(deployment)
        return member is not None and member.is_up

    # ---- deployments

    async def attach(self, deployment: str, settings: Configure, listener: GroupListener) -> Ready:
        """Take a deployment in; raise PlaitError if it does not come up."""
        if deployment in self._members:
            raise ConfigError(f"deployment {deployment!r} is in group {self.settings.name!r} already.", "Give each its own name.")
        member = Member(settings, listener, asyncio.get_running_loop().create_future())
        self._members[deployment] = member
        try:
            await self._ensure_process()
            return await self._host(deployment, member)
        except BaseException:
            self._members.pop(deployment, None)
            self._unhost(deployment)
            if not self._members:
                await self.close()
            raise

    async def _host(self, deployment: str, member: Member) -> Ready:
        self.dispatcher.host(deployment, member.settings, self._clock())
        self._flush()
        link, ready = self._link, await member.hosting
        if self._link is not link or link is None:
            raise WorkerFailure(f"worker group {self.settings.name} was lost as {deployment} came up")
        member.is_up, member.is_lost = True, False
        return ready

    def send(self, deployment: str, message: ToWorker) -> None:
        """While the deployment is not there nothing is sent."""
        member = self._members.get(deployment)
        if member is not None and member.is_up:
            self.dispatcher.send(deployment, message, self._clock())
            self._flush()

    async def drain(self, deployment: str) -> None:
        """Until all that was sent to a deployment is answered, at once if its process is lost. Nothing is to be sent meanwhile."""
        if self.is_up(deployment):
            future = self._draining[deployment] = asyncio.get_running_loop().create_future()
            self.dispatcher.wind_down(deployment)
            self._flush()
            try:
                await future
            finally:
                self._draining.pop(deployment, None)

    async def detach(self, deployment: str, patience_s: float | None = None) -> None:
        """Let go of a deployment; what it has made durable stays. A process that has not let go after `patience_s` hangs."""
        member = self._members.pop(deployment, None)
        if member is not None and not member.hosting.done():
            member.hosting.set_exception(ConfigError(f"deployment {deployment!r} has left.", "Attach it again."))
        try:
            if member is not None and self._link is not None:
                self._unhost(deployment)
                await self._departures.wait(deployment, patience_s)
        finally:  # Who does not wait any longer leaves no process without deployments.
            if not self._members and not self._departures.are_awaited:
                await self.close()

    def _unhost(self, deployment: str) -> None:
        if self._link is not None:
            self._departures.told(deployment)
            self.dispatcher.unhost(deployment, self._clock())
            self._flush()

    async def close(self) -> None:
        if self._restarting is not None:
            self._restarting.cancel()
        async with self._changing:  # Who comes meanwhile finds nothing of the old process.
            link, self._link = self._link, None
            try:
                if link is not None:
                    await link.close()
            finally:
                self._forget_process()

    def _forget_process(self) -> None:
        """It is gone; the next one knows nothing of what it had."""
        self._departures.end_all()
        self.dispatcher.lose_all()

    # ---- the process

    def _flush(self) -> None:
        frames, answers = self.dispatcher.take()
        if self._link is not None:
            for frame in frames:
                self._link.send(frame)
        for deployment, answer in answers:
            # Not at once: who is to be answered is in the midst of sending.
            asyncio.get_running_loop().call_soon(self._tell, deployment, answer)
        for deployment, future in self._draining.items():
            if not future.done() and (not self.is_up(deployment) or self.dispatcher.is_idle(deployment)):
                future.set_result(None)

    def _on_frame(self, frame: FromGroup) -> None:
        try:
            self._hear(frame)
        except Exception as error:  # Raised further it would end the reader of the group, and all would wait for ever.
            self._fail(error)

    def _hear(self, frame: FromGroup) -> None:
        now_s = self._clock()
        match frame:
            case FromDeployment(deployment, message):
                self.dispatcher.heard(deployment, message, now_s)
                self._take(deployment, message)
                self.dispatcher.settle(self._clock())
            case CallOver():
                self.dispatcher.call_over(frame, now_s)
            case Switched():
                self.dispatcher.switched(frame)
            case Prefetched():
                self.dispatcher.prefetched(frame)
            case Unhosted(deployment, footprints, resident):
                self.dispatcher.residents.report(footprints, resident)
                self._departures.answered(deployment)
        self._flush()

    def _take(self, deployment: str, message: FromWorker) -> None:
        member = self._members.get(deployment)
        if member is None or self._departures.is_under_way(deployment):
            return
        if member.is_up or isinstance(message, Starting):
            self._tell(deployment, message)
        elif isinstance(message, Ready) and not member.hosting.done():
            member.hosting.set_result(message)
        elif isinstance(message, StartFailed) and not member.hosting.done():
            member.hosting.set_exception(PlaitError(message.message, message.remedy))

    def _tell(self, deployment: str, message: FromWorker) -> None:
        member = self._members.get(deployment)
        if member is None:
            return
        if isinstance(message, EngineStats):
            message = msgspec.structs.replace(message, counters=message.counters | self.dispatcher.counters.snapshot())
        member.tell(lambda listener: listener.on_message(message))

    def _on_lost(self, failure: WorkerFailure) -> None:
        self._link = None
        self._forget_process()
        were_up = [member for member in self._members.values() if member.is_up]
        for member in list(self._members.values()):
            if not member.is_up and not member.hosting.done():
                member.hosting.set_exception(failure)
            member.is_lost, member.is_up = member.is_lost or member.is_up, False
        for member in were_up:
            member.tell(lambda listener: listener.on_lost(failure))
        self._flush()
        self._replace(failure)

    def _replace(self, failure: WorkerFailure) -> None:
        if self._restarts.take():
            self._restarting = asyncio.create_task(self._restart())
        else:
            self._fail(failure)

    async def _restart(self) -> None:
        """Bring up a process and all deployments that were lost, one after another; those that are new come up by themselves."""
        try:
            await self._ensure_process()
        except WorkerFailure as failure:
            self._replace(failure)
            return
        except Exception as error:  # Whatever it is: nobody else would hear of it, and all would wait for ever.
            self._fail(error)
            return
        for deployment, member in list(self._members.items()):
            is_wanted = member.is_lost and self._members.get(deployment) is member
            if is_wanted and not await self._rehost(deployment, member):
                return

    async def _rehost(self, deployment: str, member: Member) -> bool:
        """False: there is nothing to go on with, and who has to hear of it has heard."""
        member.hosting = asyncio.get_running_loop().create_future()
        try:
            await self._host(deployment, member)
        except WorkerFailure:
            return False
        except PlaitError as error:
            if deployment in self._members:
                member.listener.on_failed(error)
            return True
        member.tell(lambda listener: listener.on_ready())
        return True

    async def _ensure_process(self) -> None:
        async with self._changing:
            if self._link is None:
                self._link = await GroupLink.start(self._executor, self.settings, self._on_frame, self._on_lost)

    def _fail(self, error: Exception) -> None:
        for member in list(self._members.values()):
            member.listener.on_failed(error)
