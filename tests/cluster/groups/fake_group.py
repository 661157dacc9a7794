"""Processes of worker groups without processes: they hold the locks of what they have open, keep records, and can be lost."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable
from itertools import count

from plait.cluster.executors.carrier import Executor
from plait.cluster.groups.messages import (
    CallOver,
    ConfigureGroup,
    FromDeployment,
    FromGroup,
    Host,
    Pass,
    RunCall,
    Switch,
    Switched,
    ToGroup,
    Unhost,
    Unhosted,
)
from plait.cluster.messages import AdapterClosed, CancelRequests, ChunksDone, FromWorker, Ready, SubmitChunks, ToWorker
from plait.cluster.model_messages import (
    CallDone,
    CallFailed,
    CloseModel,
    DiscardGradients,
    ForwardBackward,
    ModelOpened,
    OpenModel,
    OptimStep,
)
from plait.types.chunks import Chunk, ChunkResult
from plait.types.errors import WorkerFailure
from plait.types.policy import AdapterRef, PolicyVersion
from plait.types.sampling import StopReason

MODULUS = 97


class Disk:
    """What all processes share. `steps`: of each model, the forward_backward calls that each version was made of."""

    def __init__(self, seed: int = 0) -> None:
        self.chance = random.Random(seed)
        self.steps: defaultdict[str, list[tuple[int, ...]]] = defaultdict(list)
        self.seq_ids: dict[str, int] = {}
        self.locks: dict[str, FakeLink] = {}
        self.links: list[FakeLink] = []

    async def start(
        self,
        executor: Executor,
        settings: ConfigureGroup,
        on_frame: Callable[[FromGroup], None],
        on_lost: Callable[[WorkerFailure], None],
    ) -> "FakeLink":
        """In place of `GroupLink.start`."""
        await asyncio.sleep(0.001)
        self.links.append(FakeLink(self, settings, on_frame, on_lost))
        return self.links[-1]

    def of(self, group: str) -> "FakeLink":
        """The latest process of a group."""
        return next(link for link in reversed(self.links) if link.settings.name == group)

    def ref(self, model: str) -> AdapterRef:
        return AdapterRef(PolicyVersion("t", model, len(self.steps[model])), "folder", "digest")


class FakeLink:
    pids = count(1)

    def __init__(
        self, disk: Disk, settings: ConfigureGroup, on_frame: Callable[[FromGroup], None], on_lost: Callable[[WorkerFailure], None]
    ) -> None:
        self.disk, self.settings, self._on_frame, self._on_lost = disk, settings, on_frame, on_lost
        self.pid = next(self.pids)
        self.hosted: list[str] = []
        self.gradients: dict[tuple[str, str], list[int]] = {}
        """Of each model that is open, by deployment."""
        self._inbox: asyncio.Queue[ToGroup] = asyncio.Queue()
        self._task = asyncio.create_task(self._serve())

    def send(self, frame: ToGroup) -> None:
        self._inbox.put_nowait(frame)

    async def close(self) -> None:
        self._task.cancel()
        self._unlock(lambda key: True)

    def die(self) -> None:
        self._task.cancel()
        self._unlock(lambda key: True)
        self._on_lost(WorkerFailure(f"process {self.pid} of {self.settings.name} was killed"))

    def hang(self) -> None:
        """Until it is to `go_on`."""
        self._task.cancel()

    held_back: list[ToGroup] | None = None
    """Work that is not done yet; None: all is done as it comes."""

    def holds_back(self, kind: type) -> bool:
        """A message of this kind."""
        return any(isinstance(frame, Pass) and isinstance(frame.message, kind) for frame in self.held_back or ())

    def go_on(self, *kinds: type) -> None:
        """With work of these kinds that was held back; without kinds, with all, and what comes."""
        if self._task.cancelled():
            self._task = asyncio.create_task(self._serve())
        held, self.held_back = self.held_back or [], [] if kinds else None
        for frame in held:
            if self.held_back is None or isinstance(frame, kinds):
                self._handle(frame)
            else:
                self.held_back.append(frame)

    async def _serve(self) -> None:
        while True:
            frame = await self._inbox.get()
            await asyncio.sleep(self.disk.chance.choice((0.0, 0.0, 0.001)))
            if self.held_back is not None and isinstance(frame, Host | Pass | RunCall):
                self.held_back.append(frame)
            else:
                self._handle(frame)

    def _handle(self, frame: ToGroup) -> None:
        match frame:
            case Host(call_id, deployment):
                self.hosted.append(deployment)
                self._say(deployment, Ready("digest", True, "", "cpu", 0.0))
                self._over(call_id)
            case Unhost(deployment):
                self.hosted = [name for name in self.hosted if name != deployment]
                self._unlock(lambda key: key[0] == deployment)
                self._on_frame(Unhosted(deployment, self._sizes(), tuple(self.hosted)))
            case Switch(_, activate):
                self._on_frame(Switched(activate, "host", 0.0, {}, self._sizes(), tuple(self.hosted)))
            case RunCall(call_id, deployment, message):
                self._say(deployment, self._run(deployment, message))
                self._over(call_id)
            case Pass(deployment, message):
                self._passed(deployment, message)

    def _run(self, deployment: str, message: ToWorker) -> FromWorker:
        assert isinstance(message, OpenModel | ForwardBackward | OptimStep | DiscardGradients)
        model, disk = message.model_id, self.disk
        if isinstance(message, OpenModel):
            assert disk.locks.get(model, self) is self, "a record has one writer"
            disk.locks[model] = self
            self.gradients[deployment, model] = []
            return ModelOpened(model, disk.ref(model), disk.seq_ids.get(model, 0))
        if isinstance(message, DiscardGradients):
            self.gradients[deployment, model] = []
            return CallDone(model, 0, disk.ref(model))
        if (deployment, model) not in self.gradients:
            return CallFailed(model, message.seq_id, f"model {model} is not open", is_user_error=False)
        if isinstance(message, ForwardBackward):
            self.gradients[deployment, model].append(message.seq_id)
        else:
            disk.steps[model].append(tuple(self.gradients[deployment, model]))
            disk.seq_ids[model] = message.seq_id
            self.gradients[deployment, model] = []
        return CallDone(model, message.seq_id, disk.ref(model))

    def _passed(self, deployment: str, message: ToWorker) -> None:
        match message:
            case SubmitChunks(chunks):
                assert deployment in self.hosted
                for chunk in chunks:
                    self._say(deployment, ChunksDone((drawn(chunk),)))
            case CloseModel(model):
                self._unlock(lambda key: key == (deployment, model))
                self._say(deployment, AdapterClosed(model))
            case CancelRequests():
                pass  # What was handed over is answered by then.

    def _unlock(self, is_gone: Callable[[tuple[str, str]], bool]) -> None:
        for key in [key for key in self.gradients if is_gone(key)]:
            del self.gradients[key]
            if self.disk.locks.get(key[1]) is self:
                del self.disk.locks[key[1]]

    def _say(self, deployment: str, message: FromWorker) -> None:
        self._on_frame(FromDeployment(deployment, message))

    def _over(self, call_id: str) -> None:
        self._on_frame(CallOver(call_id, 0.001, self._sizes(), tuple(self.hosted)))

    def _sizes(self) -> dict[str, int]:
        return dict.fromkeys(self.hosted, 1)


def drawn(chunk: Chunk) -> ChunkResult:
    """A token depends on all before it."""
    context = list(chunk.context_tokens)
    left = chunk.sampling.max_new_tokens - chunk.generated_tokens
    tokens = continuation(context, min(chunk.budget_tokens, left))
    stop = StopReason.LENGTH if len(tokens) == left else StopReason.BUDGET
    return ChunkResult(chunk.request_id, chunk.policy, tuple(tokens), (0.0,) * len(tokens), stop)


def continuation(context: list[int], num_tokens: int) -> list[int]:
    drawn_tokens: list[int] = []
    for _ in range(num_tokens):
        drawn_tokens.append((sum(context) + sum(drawn_tokens) + len(context) + len(drawn_tokens)) % MODULUS)
    return drawn_tokens
