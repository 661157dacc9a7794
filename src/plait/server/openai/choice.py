"""One answer under way: tokens in, pieces of text out. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from plait.server.openai.text_stream import TextStream
from plait.types.sampling import StopReason

Top = Sequence[tuple[int, float]]
"""The likeliest tokens at one position, with their log-probabilities."""
BytesOf = Callable[[int], bytes]
FINISH: dict[StopReason, Literal["stop", "length"]] = {
    StopReason.STOP_TOKEN: "stop",
    StopReason.STOP_STRING: "stop",
    StopReason.LENGTH: "length",
    StopReason.CONTEXT: "length",
}


@dataclass(frozen=True, slots=True)
class TextToken:
    token: int
    start: int
    """Characters of the text before it."""
    logprob: float | None
    """None: of a prompt's first token."""
    top: Top = ()


@dataclass(frozen=True, slots=True)
class Piece:
    text: str
    tokens: Sequence[TextToken] = ()
    """Those whose text has been given out in whole by now."""
    finish: Literal["stop", "length"] | None = None
    """The answer is over."""


@dataclass(slots=True)
class Choice:
    """`bytes_of` a token are what it adds to the text. A stop token is no text."""

    bytes_of: BytesOf
    stop_token_ids: frozenset[int]
    stops: tuple[str, ...] = ()
    _text: TextStream = field(init=False)
    _waiting: list[TextToken] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self._text = TextStream(self.stops)

    def take(self, tokens: Sequence[int], logprobs: Sequence[float | None], tops: Sequence[Top], stop: StopReason) -> Piece:
        """What a chunk adds; `tops` may be empty. At its end, `stop` says whether the answer is over."""
        text, ready = "", []
        for index, token in enumerate(tokens):
            if token in self.stop_token_ids or self._text.is_stopped:
                break
            top = tops[index] if tops else ()
            self._waiting.append(TextToken(token, self._text.num_chars, logprobs[index], top))
            text += self._text.feed(self.bytes_of(token))
            ready += self._certain()
        if stop == StopReason.BUDGET:
            return Piece(text, ready)
        text += self._text.finish()
        return Piece(text, ready + self._rest(), "stop" if self._text.is_stopped else FINISH[stop])

    def _certain(self) -> list[TextToken]:
        if self._text.is_stopped:
            return self._rest()
        return [] if self._text.holds_back else self._rest()

    def _rest(self) -> list[TextToken]:
        """Those that waited, without the ones that lie after the end of the text."""
        waiting, self._waiting = self._waiting, []
        if not self._text.is_stopped:
            return waiting
        return [token for token in waiting if token.start < self._text.num_released]
