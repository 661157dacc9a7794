"""What is known of a future: one of four states."""

from enum import StrEnum

import msgspec


class FailureCategory(StrEnum):
    """Whose fault a failure is, in the words of the Tinker API."""

    USER = "user"
    SERVER = "server"
    UNKNOWN = "unknown"


class Pending(msgspec.Struct, frozen=True):
    """The work has not ended."""


class Finished(msgspec.Struct, frozen=True):
    payload: bytes
    content_type: str


class Failed(msgspec.Struct, frozen=True):
    error: str
    category: FailureCategory


class Expired(msgspec.Struct, frozen=True):
    """There was a result, or would have been; it is gone."""

    reason: str


FutureState = Pending | Finished | Failed | Expired


def held_bytes(state: FutureState) -> int:
    """What the state's result takes."""
    match state:
        case Finished(payload=payload):
            return len(payload)
        case Failed(error=error):
            return len(error)
        case _:
            return 0
