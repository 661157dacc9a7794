"""What the messages to a trainer are about. Pure."""

import msgspec

from plait.cluster.messages import CloseTask, OpenTask, SetTenantWeight, Update
from plait.cluster.model_messages import (
    CloseModel,
    DiscardGradients,
    ForwardBackward,
    LoadModel,
    ModelMessage,
    OpenModel,
    OptimStep,
    SaveModel,
)

ToTrainer = OpenTask | Update | CloseTask | ModelMessage | SetTenantWeight
Opening = OpenTask | OpenModel
Work = Update | ForwardBackward | OptimStep | SaveModel | LoadModel

UPDATE = "update"
"""In place of a seq_id: the update of a task, which has one at a time."""


def owner_of(message: Opening | Work | DiscardGradients | CloseTask | CloseModel) -> str:
    """The task's or the model's name."""
    match message:
        case OpenTask():
            return message.key or str(msgspec.json.decode(message.settings_json)["name"])
        case Update() | CloseTask():
            return message.task
    return message.model_id


def closing(opening: Opening) -> CloseTask | CloseModel:
    return CloseTask(owner_of(opening)) if isinstance(opening, OpenTask) else CloseModel(opening.model_id)


def call_of(message: Work) -> str | int:
    return UPDATE if isinstance(message, Update) else message.seq_id


def size_of(message: Work) -> int:
    """Tokens that it trains; 0 of what takes no pass."""
    return sum(len(datum.tokens) for datum in message.datums) if isinstance(message, Update | ForwardBackward) else 0


def has_gradients_after(message: Work, has_gradients: bool) -> bool:
    match message:
        case ForwardBackward():
            return has_gradients or not message.forward_only
        case OptimStep() | LoadModel():
            return False
    return has_gradients
