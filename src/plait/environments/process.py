"""The main program of an environment process: builds environments and serves calls to them, one at a time.

It sets no timers: the controller kills it when a call takes too long. Whatever a user's code raises becomes `Raised`.
"""

import traceback
from typing import Any, assert_never

import msgspec
from pydantic import TypeAdapter

from plait.config.environments import AnyEnvironmentSettings
from plait.environments.calls import (
    AnyAnswer,
    AnyCall,
    BuildCall,
    CleanupCall,
    CountCall,
    EnvironmentInfo,
    ExampleCall,
    Raised,
    Returned,
    ScoreCall,
    SetupCall,
    TurnCall,
    answer_codec,
    call_codec,
)
from plait.environments.protocol import Environment, check_score
from plait.environments.registry import make_environment
from plait.transport.parent import ParentLink
from plait.types.errors import ConfigError

MAX_TRACEBACK_FRAMES = 8


def main() -> None:
    link = ParentLink.from_arguments()
    environments: dict[str, Environment] = {}
    try:
        while (message := link.receive(None)) is not None:
            link.send(answer_codec.encode(_answer(environments, call_codec.decode(message))))
    except EOFError:
        return


def _answer(environments: dict[str, Environment], call: AnyCall) -> AnyAnswer:
    try:
        return Returned(msgspec.Raw(msgspec.msgpack.encode(_perform(environments, call))))
    except ConfigError as error:
        return Raised(error.message, error.remedy, is_config_error=True)
    except (Exception, SystemExit) as error:
        return Raised("".join(traceback.format_exception(error, limit=-MAX_TRACEBACK_FRAMES)).strip())


def _perform(environments: dict[str, Environment], call: AnyCall) -> Any:
    if isinstance(call, BuildCall):
        environment = make_environment(TypeAdapter(AnyEnvironmentSettings).validate_json(call.settings_json))
        environments[call.task] = environment
        return EnvironmentInfo(environment.max_turns, environment.stateless)
    environment = environments[call.task]
    match call:
        case ExampleCall():
            return environment.example(call.index, call.split)
        case CountCall():
            return environment.count_evaluation(call.limit)
        case SetupCall():
            return environment.setup(call.example)
        case TurnCall():
            return environment.turn(call.example, call.state, call.answers)
        case ScoreCall():
            return check_score(environment.score(call.example, call.state, call.answers))
        case CleanupCall():
            return environment.cleanup(call.example, call.state)
    assert_never(call)


if __name__ == "__main__":
    main()
