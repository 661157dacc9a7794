"""The service's calls without HTTP, and its training worker's role in the same process: all that is durable is the real code."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

from plait.cluster.model_messages import CallDone, CallFailed, ModelMessage, ModelOpened
from plait.operations.future_state import Failed, Finished
from plait.operations.futures import FutureLimits
from plait.server.backend import ModelListener
from plait.server.background import Background
from plait.server.call import Call, CallFailure, CallResult
from plait.server.call_handler import CallHandler, ModelShape
from plait.server.certificates import Certifier
from plait.server.checkpoints import CheckpointStore
from plait.server.database.database import Database
from plait.server.database.tables import Checkpoint
from plait.server.folders import DataFolders
from plait.server.futures import Futures
from plait.server.model_registry import ModelRegistry
from plait.server.model_runner import ModelRunner
from plait.server.results import Results
from plait.server.samplers import Samplers
from plait.server.saving import Saving, StoredLimit
from plait.server.sessions import Sessions
from plait.server.trainer_calls import TrainerCalls
from tests.cluster.models import Device
from tests.training.tiny import MODEL

TENANT = "local"
POLL_S = 30.0


class NearBackend:
    """In place of `Backend`: a training role that is called, not a process."""

    def __init__(self, folder: Path) -> None:
        self.listeners: list[ModelListener] = []
        self._device = Device(folder)

    def send(self, message: ModelMessage) -> None:
        asyncio.get_running_loop().call_soon(self._run, message)

    def _run(self, message: ModelMessage) -> None:
        replies = self._device.replies
        replies.clear()
        self._device.send(message)
        self._device.work()
        for reply in replies:
            assert isinstance(reply, ModelOpened | CallDone | CallFailed)
            for listener in self.listeners:
                listener.on_reply(reply)


class Stand:
    def __init__(self, folder: Path) -> None:
        self.database = Database.open(f"sqlite:///{folder}/plait.db")
        self.folders = DataFolders(folder)
        self.checkpoints = CheckpointStore(self.database)
        self.trainer = TrainerCalls(NearBackend(folder))  # type: ignore[arg-type]
        self.background = Background()
        certifier = Certifier()
        self.futures = Futures(FutureLimits(grace_s=1e6, retention_s=1e6))
        saving = Saving(
            self.trainer, self.folders, self.checkpoints, StoredLimit(self.checkpoints, lambda tenant: None), lambda *_: None
        )
        handler = CallHandler(self.trainer, saving, certifier, ModelShape(MODEL.vocab_size, MODEL.max_context_tokens))
        base = SimpleNamespace(trainer=self.trainer, handler=handler)
        self.models = ModelRegistry(
            self.database,
            lambda _: base,
            self.futures,
            self.folders,
            certifier,
            max_resident={"lora": 4, "full": 4},
            on_ended=self._ended,
        )
        sessions = Sessions(self.database, 1e6, lambda session_ids, have_ended: None)
        self.results = Results(self.futures, Samplers(self.database, sessions, ()), self.models, POLL_S)

    def _ended(self, _runner: ModelRunner, _call: Call, result: CallResult | CallFailure) -> None:
        for folder in result.replaced_folders if isinstance(result, CallResult) else ():
            self.background.start(self.checkpoints.remove_folder(folder))

    async def result(self, request_id: str) -> bytes:
        state = await self.results.retrieve(request_id, TENANT)
        assert isinstance(state, Finished | Failed), state
        return state.payload if isinstance(state, Finished) else f"failed: {state.error}".encode()

    async def listed(self) -> list[Checkpoint]:
        return await self.database.run(lambda session: session.query(Checkpoint).order_by(Checkpoint.tinker_path).all())

    async def close(self) -> None:
        await self.models.close()
        await self.background.close()
        await self.database.close()


def run(folder: Path, work: Callable[[Stand], Awaitable[None]]) -> None:
    async def whole() -> None:
        stand = Stand(folder)
        await stand.checkpoints.remove_orphans(stand.folders)  # As `Service.start` does.
        await stand.models.resume()
        await work(stand)
        await stand.close()

    asyncio.run(whole())
