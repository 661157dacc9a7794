"""What an environment is: questions, turns and scores, synchronous and free of hidden state.

- `example` is deterministic, and no evaluation question is ever a training question.
- All that an episode has come to is `state`, plain data (what msgpack takes; tuples come back as lists): any process can
  carry an episode on, and one that failed starts again from zero.
- An exception means that the environment is broken. An answer that is merely bad gets a low reward.
"""

import math
from typing import Any, Literal, Protocol

import msgspec

from plait.types.messages import Message

Split = Literal["train", "evaluation"]
State = dict[str, Any]


class Example(msgspec.Struct, frozen=True):
    """One question. `example_id` is unique together with the environment's name."""

    example_id: str
    messages: tuple[Message, ...]
    data: dict[str, Any] = {}
    """What scoring needs: plain data."""
    demonstration: tuple[str, ...] = ()
    """A worked answer for each turn, for a supervised warm start; empty if there is none."""


class Reply(msgspec.Struct, frozen=True):
    """What the environment says after an answer. Without a message the episode is over."""

    message: Message | None
    state: State


class Score(msgspec.Struct, frozen=True):
    reward: float
    metrics: dict[str, float] = {}


class Environment(Protocol):
    """`max_turns` is the most answers in an episode; `stateless` says that set-up and clean-up do nothing."""

    max_turns: int
    stateless: bool

    def example(self, index: int, split: Split) -> Example:
        """The question at `index` >= 0. Training goes on for ever; raises IndexError where evaluation has no more."""

    def count_evaluation(self, limit: int) -> int:
        """How many different evaluation questions there are, counting no further than `limit`."""

    def setup(self, example: Example) -> State:
        """The state before the first turn."""

    def turn(self, example: Example, state: State, answers: tuple[str, ...]) -> Reply:
        """React to the last of `answers`. Not asked after the answer of turn `max_turns`, which only gets scored."""

    def score(self, example: Example, state: State, answers: tuple[str, ...]) -> Score:
        """Judge the whole episode."""

    def cleanup(self, example: Example, state: State) -> None:
        """Free what `setup` took. Called once for every episode, also for failed ones, with the last state known ({} without)."""


class SingleTurnEnvironment:
    """A question, an answer, a score."""

    max_turns = 1
    stateless = True

    def setup(self, example: Example) -> State:
        return {}

    def turn(self, example: Example, state: State, answers: tuple[str, ...]) -> Reply:
        return Reply(None, state)

    def cleanup(self, example: Example, state: State) -> None:
        return None


def check_score(score: Score) -> Score:
    """Raise ValueError for a reward or metric that is not a finite number."""
    numbers = {"reward": score.reward, **score.metrics}
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{name} is {value!r}, which is not a finite number")
    return score


def prompt_messages(question: str, system_prompt: str | None) -> tuple[Message, ...]:
    """The conversation before the first answer. An empty system prompt is kept: it displaces the template's own."""
    system = () if system_prompt is None else (Message("system", system_prompt),)
    return (*system, Message("user", question))


def append_instruction(question: str, instruction: str) -> str:
    return f"{question}\n{instruction}" if instruction else question
