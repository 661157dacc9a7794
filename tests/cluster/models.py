"""A model role on a random tiny decoder, and what a client would send it."""

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from plait.cluster.job_queue import JobQueue
from plait.cluster.messages import AdapterClosed, FromWorker
from plait.cluster.model_messages import (
    CallDone,
    CallFailed,
    ForwardBackward,
    LoadModel,
    ModelMessage,
    ModelOpened,
    OpenModel,
    OptimStep,
    SaveModel,
)
from plait.cluster.model_role import ModelRole
from plait.cluster.trained_weights import AdapterBase
from plait.config.task import LossSettings, OptimizerSettings
from plait.models.decoder import Decoder
from plait.training.training_pass import PassSettings
from plait.types.datum import Datum
from plait.types.lora import LoraConfig
from tests.training.tiny import make_datums, make_decoder

LORA = LoraConfig(rank=4, alpha=8.0, target_modules=("q_proj", "v_proj", "down_proj", "lm_head"), seed=3)
ADAM = OptimizerSettings(learning_rate=1e-2, max_grad_norm=0.0).model_dump_json()
IMPORTANCE = LossSettings().model_dump_json()


@cache
def decoder() -> Decoder:
    return make_decoder()


class Device:
    """A role with its queue, driven by hand; `replies` has what came back, but for the names in `closed`."""

    def __init__(self, folder: Path, digest: str = "base", micro_batch_tokens: int = 2048) -> None:
        self.folder, self.queue = folder, JobQueue()
        self.role = ModelRole(AdapterBase(decoder(), digest, "tiny", PassSettings(micro_batch_tokens)), self.queue)
        self.replies: list[FromWorker] = []
        self.closed: list[str] = []

    def send(self, *messages: ModelMessage) -> None:
        for message in messages:
            told = self.role.handle(message)
            self.closed += [reply.name for reply in told if isinstance(reply, AdapterClosed)]
            self.replies += [reply for reply in told if not isinstance(reply, AdapterClosed)]

    def work(self) -> None:
        """To the end."""
        while self.queue.has_work:
            self.replies += self.queue.work()[1].replies

    def call(self, message: ModelMessage) -> Any:
        """The one answer to a call, run to its end."""
        before = len(self.replies)
        self.send(message)
        self.work()
        (reply,) = self.replies[before:]
        return reply

    def open(self, model_id: str = "a", lora: LoraConfig = LORA, **more: Any) -> ModelOpened:
        opened = self.call(OpenModel(model_id, "local", lora, str(self.folder / model_id), **more))
        assert isinstance(opened, ModelOpened), opened
        return opened

    def done(self, message: ModelMessage) -> CallDone:
        reply = self.call(message)
        assert isinstance(reply, CallDone), reply
        return reply

    def failed(self, message: ModelMessage) -> CallFailed:
        reply = self.call(message)
        assert isinstance(reply, CallFailed), reply
        return reply


def data(seed: int = 0, num_groups: int = 2) -> tuple[Datum, ...]:
    return tuple(make_datums(seed, num_groups))


def backward(seq_id: int, datums: Sequence[Datum] | None = None, model_id: str = "a", **more: Any) -> ForwardBackward:
    return ForwardBackward(model_id, seq_id, tuple(data() if datums is None else datums), **{"loss_json": IMPORTANCE, **more})


def forward(seq_id: int, datums: Sequence[Datum] | None = None, model_id: str = "a", **more: Any) -> ForwardBackward:
    return backward(seq_id, datums, model_id, forward_only=True, **more)


def step(seq_id: int, model_id: str = "a", **more: Any) -> OptimStep:
    return OptimStep(model_id, seq_id, **{"optimizer_json": ADAM, **more})


def save(seq_id: int, folder: Path, with_optimizer: bool = True, model_id: str = "a") -> SaveModel:
    return SaveModel(model_id, seq_id, str(folder), with_optimizer)


def load(seq_id: int, folder: Path, with_optimizer: bool = True, model_id: str = "a") -> LoadModel:
    return LoadModel(model_id, seq_id, str(folder), with_optimizer)


def rows(done: CallDone) -> list[list[float]]:
    """Log-probabilities of each datum."""
    return [np.frombuffer(row, "<f4").tolist() for row in done.logprobs]


def seq_ids(replies: Iterable[FromWorker]) -> list[tuple[str, int]]:
    return [(reply.model_id, reply.seq_id) for reply in replies if isinstance(reply, CallDone | CallFailed)]
