"""Which messages to a worker are function calls, that wait for their turn on the device. Pure, torch-free.

Chunks and prompts to score are gathered into turns of sampling (`sample_turn`). Whatever is neither passes at once.
"""

from typing import NamedTuple

import msgspec

from plait.cluster.messages import CloseTask, OpenTask, SubmitChunks, ToWorker, Update
from plait.cluster.model_messages import (
    CloseModel,
    DiscardGradients,
    ForwardBackward,
    LoadModel,
    OpenModel,
    OptimStep,
    SaveModel,
    ScorePrompt,
)

SAMPLE, HOST = "sample", "host"
"""Names of functions: a turn of sampling, and taking a deployment in."""


class CallKind(NamedTuple):
    function: str
    stream: str
    """Calls of one task or model keep their order."""
    size_tokens: int = 0


class _Named(msgspec.Struct):
    name: str


_task_name = msgspec.json.Decoder(_Named).decode


def call_kind(message: ToWorker) -> CallKind | None:
    """None: it is no function call."""
    match message:
        case OpenTask():
            return CallKind("open", message.key or _task_name(message.settings_json).name)
        case Update():
            return CallKind("update", message.task, sum(len(datum.tokens) for datum in message.datums))
        case ForwardBackward():
            size = sum(len(datum.tokens) for datum in message.datums)
            return CallKind("forward" if message.forward_only else "forward_backward", message.model_id, size)
        case OpenModel() | OptimStep() | SaveModel() | LoadModel() | DiscardGradients():
            return CallKind(_MODEL_FUNCTIONS[type(message)], message.model_id)
    return None


_MODEL_FUNCTIONS = {
    OpenModel: "open", OptimStep: "optim_step", SaveModel: "save", LoadModel: "load", DiscardGradients: "discard_gradients",
}  # fmt: skip


def closed_stream(message: ToWorker) -> str | None:
    """The task or model whose calls that wait are not to run any more."""
    match message:
        case CloseTask(task):
            return task
        case CloseModel(model_id):
            return model_id
    return None


def sampled_tokens(message: SubmitChunks | ScorePrompt) -> int:
    """What the time of a turn of sampling grows with."""
    if isinstance(message, ScorePrompt):
        return len(message.tokens)
    return sum(chunk.budget_tokens for chunk in message.chunks)
