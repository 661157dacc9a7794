"""Worked episodes for a supervised warm start, in the tokens that rollout would have made of them."""

from typing import Protocol

from plait.environments.episode import EpisodeEnvironment, EpisodeTokenizer
from plait.environments.protocol import Example
from plait.types.errors import ConfigError
from plait.types.messages import Message
from plait.types.policy import PolicyVersion
from plait.types.sampling import StopReason
from plait.types.trajectory import Segment


class DemonstrationTokenizer(EpisodeTokenizer, Protocol):
    @property
    def stop_token_ids(self) -> tuple[int, ...]: ...
    def encode(self, text: str) -> tuple[int, ...]: ...


async def render_demonstration(
    environment: EpisodeEnvironment, tokenizer: DemonstrationTokenizer, example: Example, policy: PolicyVersion
) -> tuple[Segment, ...]:
    """Play the example's worked answers. Segments with a policy are the answers, each closed by the end-of-turn token.

    Raises ConfigError if the example has no worked answers, and EnvironmentFailure.
    """
    if not example.demonstration:
        raise ConfigError(f"The environment of task {environment.name!r} has no worked answers.", "Set warm_start.steps to 0.")
    segments = [Segment(tokenizer.render_prompt(example.messages))]
    state = await environment.setup(example)
    try:
        for turn, answer in enumerate(example.demonstration):
            tokens = tokenizer.encode(answer) + end_of_turn(tokenizer)
            segments.append(Segment(tokens, policy=policy, stop=StopReason.STOP_TOKEN))
            if turn + 1 == len(example.demonstration):
                break
            reply = await environment.turn(example, state, example.demonstration[: turn + 1])
            state = reply.state
            if reply.message is None:
                raise ConfigError(
                    f"Task {environment.name!r} ended after turn {turn} of a demonstration.", "Mend its worked answers."
                )
            segments.append(Segment(tokenizer.render_followup(reply.message, previous_ended=True)))
    finally:
        await environment.cleanup(example, state)
    return tuple(segments)


def end_of_turn(tokenizer: DemonstrationTokenizer) -> tuple[int, ...]:
    """The tokens that close an assistant's turn: what a follow-up has more when the turn had not ended."""
    message = Message("user", "-")
    whole, rest = (tokenizer.render_followup(message, previous_ended=ended) for ended in (False, True))
    return whole[: len(whole) - len(rest)] or tokenizer.stop_token_ids[:1]
