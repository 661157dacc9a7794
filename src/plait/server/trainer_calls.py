"""Calls to the trainers of a base model as coroutines: one answer each, or TrainerLost."""

import asyncio
from collections import Counter
from collections.abc import Collection

from plait.cluster.messages import SetTenantWeight
from plait.cluster.model_messages import (
    OPENING,
    CallDone,
    CallFailed,
    CloseModel,
    DiscardGradients,
    ForwardBackward,
    LoadModel,
    ModelOpened,
    OpenModel,
    OptimStep,
    SaveModel,
)
from plait.server.backend import Backend, ModelReply
from plait.server.call import CallError

Awaited = OpenModel | ForwardBackward | OptimStep | SaveModel | LoadModel


class TrainerLost(Exception):
    """The worker ended before it answered; whether the call took place shows when its model is opened again."""


class TrainerCalls:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._waiting: dict[tuple[str, int], asyncio.Future[ModelOpened | CallDone]] = {}
        self._num_losses: Counter[str] = Counter()
        self._weights: dict[str, float] = {}
        self._is_back = asyncio.Event()
        self._is_back.set()
        backend.listeners.append(self)

    async def open(self, message: OpenModel) -> ModelOpened:
        reply = await self._call(message, OPENING)
        assert isinstance(reply, ModelOpened)
        return reply

    async def call(self, message: ForwardBackward | OptimStep | SaveModel | LoadModel) -> CallDone:
        """Raises CallError, or TrainerLost."""
        reply = await self._call(message, message.seq_id)
        assert isinstance(reply, CallDone)
        return reply

    def num_losses(self, model_id: str) -> int:
        """How often the model was lost: if it was opened before the latest loss, it is open no more."""
        return self._num_losses[model_id]

    def set_weight(self, tenant_id: str, weight: float) -> None:
        """A tenant's share of each trainer; held also by workers that come later."""
        self._weights[tenant_id] = weight
        self._backend.send(SetTenantWeight(tenant_id, weight))

    def send_weights(self) -> None:
        """To a worker that is new."""
        for tenant_id, weight in self._weights.items():
            self._backend.send(SetTenantWeight(tenant_id, weight))

    def tell(self, message: DiscardGradients | CloseModel) -> None:
        self._backend.send(message)

    async def wait_until_back(self) -> None:
        await self._is_back.wait()

    async def _call(self, message: Awaited, seq_id: int) -> ModelOpened | CallDone:
        key = message.model_id, seq_id
        if not self._is_back.is_set():
            raise TrainerLost
        future = self._waiting[key] = asyncio.get_running_loop().create_future()
        self._backend.send(message)
        try:
            return await future
        finally:
            self._waiting.pop(key, None)

    # ---- ModelListener

    def on_reply(self, reply: ModelReply) -> None:
        key = reply.model_id, OPENING if isinstance(reply, ModelOpened) else reply.seq_id
        future = self._waiting.get(key)
        if future is None or future.done():
            return
        if isinstance(reply, CallFailed):
            future.set_exception(CallError(reply.error, reply.is_user_error))
        else:
            future.set_result(reply)

    def on_trainer_lost(self, owners: Collection[str], num_left: int) -> None:
        self._num_losses.update(owners)
        if not num_left:
            self._is_back.clear()
        for (model_id, _), future in self._waiting.items():
            if (model_id in owners or not num_left) and not future.done():
                future.set_exception(TrainerLost())

    def on_trainer_back(self) -> None:
        self.send_weights()
        self._is_back.set()

    def fail_all(self, error: Exception) -> None:
        """No worker will come."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)
