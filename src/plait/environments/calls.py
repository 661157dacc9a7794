"""Messages between the controller and an environment process: one call, one answer, in turn."""

import msgspec

from plait.environments.failure import Stage
from plait.environments.protocol import Example, Split, State
from plait.transport.codec import Codec


class Call(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    task: str


class BuildCall(Call, frozen=True, kw_only=True, tag="build"):
    settings_json: str


class ExampleCall(Call, frozen=True, kw_only=True, tag="example"):
    index: int
    split: Split


class CountCall(Call, frozen=True, kw_only=True, tag="count"):
    limit: int


class SetupCall(Call, frozen=True, kw_only=True, tag="setup"):
    example: Example


class TurnCall(Call, frozen=True, kw_only=True, tag="turn"):
    example: Example
    state: State
    answers: tuple[str, ...]


class ScoreCall(Call, frozen=True, kw_only=True, tag="score"):
    example: Example
    state: State
    answers: tuple[str, ...]


class CleanupCall(Call, frozen=True, kw_only=True, tag="cleanup"):
    example: Example
    state: State


AnyCall = BuildCall | ExampleCall | CountCall | SetupCall | TurnCall | ScoreCall | CleanupCall

STAGES: dict[type[Call], Stage] = {
    BuildCall: "build",
    ExampleCall: "example",
    CountCall: "example",
    SetupCall: "setup",
    TurnCall: "turn",
    ScoreCall: "score",
    CleanupCall: "cleanup",
}


class EnvironmentInfo(msgspec.Struct, frozen=True):
    """What a BuildCall returns."""

    max_turns: int
    stateless: bool


class Returned(msgspec.Struct, frozen=True, tag="returned"):
    """`value` is msgpack of what the method returned."""

    value: msgspec.Raw


class Raised(msgspec.Struct, frozen=True, tag="raised"):
    """`cause` is a traceback; for a ConfigError its message and remedy."""

    cause: str
    remedy: str = ""
    is_config_error: bool = False


AnyAnswer = Returned | Raised

call_codec: Codec[AnyCall] = Codec(AnyCall)
answer_codec: Codec[AnyAnswer] = Codec(AnyAnswer)
