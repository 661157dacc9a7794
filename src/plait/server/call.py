"""One call of a model, and how it ended."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sqlalchemy.orm import Session

from plait.types.errors import PlaitError

JSON, PROTOBUF = "application/json", "application/x-protobuf"


class Kind(StrEnum):
    CREATE = "create_model"
    FORWARD_BACKWARD = "forward_backward"
    """Also a forward pass alone: only the body tells them apart."""
    OPTIM_STEP = "optim_step"
    SAVE = "save_weights"
    SAVE_FOR_SAMPLER = "save_weights_for_sampler"
    SAVE_EXTERNAL = "save_weights_external"
    LOAD = "load_weights"


CHANGING_KINDS = (Kind.OPTIM_STEP, Kind.LOAD)
"""Each makes a version of its model."""


@dataclass(frozen=True, slots=True)
class Call:
    model_id: str
    seq_id: int
    kind: Kind
    payload: bytes = field(repr=False)
    """The request's body, not compressed."""
    accepted_s: float = field(default_factory=time.monotonic, compare=False, repr=False)
    """By this server, on the monotonic clock."""

    @property
    def request_id(self) -> str:
        return call_request_id(self.model_id, self.seq_id)

    @property
    def changes_version(self) -> bool:
        return self.kind in CHANGING_KINDS


def call_request_id(model_id: str, seq_id: int) -> str:
    return f"{model_id}:call:{seq_id}"


@dataclass(frozen=True, slots=True)
class CallResult:
    body: bytes = field(repr=False)
    content_type: str
    effects: tuple[Callable[[Session], Any], ...] = ()
    """What else is committed together with the result."""
    version: int | None = None
    num_trained_tokens: int = 0
    device_s: float = 0.0
    replaced_folders: list[str] = field(default_factory=list)
    """Of checkpoints that `effects` put something in the place of; filled in when they are stored."""
    has_gradients: bool = False
    """Its gradients wait for a step, and must be made again if the trainer is lost."""

    @classmethod
    def of_json(cls, content: dict[str, Any], **more: Any) -> "CallResult":
        return cls(json.dumps(content).encode(), JSON, **more)


@dataclass(frozen=True, slots=True)
class CallFailure:
    error: str
    is_user_error: bool
    lacks_gradients: bool = False
    """The gradients that wait lack those of this call, so that no step may be made with them."""


class CallError(PlaitError):
    """A call failed. `is_user_error`: its input is at fault, not the service."""

    def __init__(self, message: str, is_user_error: bool) -> None:
        super().__init__(message)
        self.is_user_error = is_user_error
