"""Calls of tools in an answer's text, in the format of Hermes and Qwen: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`.

What looks like a call and is none stays text. Pure.
"""

import json
from dataclasses import dataclass

from plait.server.openai.text_stream import TextStream

OPEN, CLOSE = "<tool_call>", "</tool_call>"


@dataclass(frozen=True, slots=True)
class CalledTool:
    name: str
    arguments: str
    """JSON."""


Part = str | CalledTool


class ToolCallStream:
    """Takes text as it comes; gives out text that is no call, and calls when they are complete."""

    def __init__(self) -> None:
        self._outside = TextStream((OPEN,))
        self._inside: str | None = None
        """Text since `OPEN`; None: outside of a call."""
        self.num_calls = 0

    def feed(self, text: str) -> list[Part]:
        parts: list[Part] = []
        while text:
            text = self._feed_outside(text, parts) if self._inside is None else self._feed_inside(text, parts)
        return parts

    def _feed_outside(self, text: str, parts: list[Part]) -> str:
        """What is left of `text`, after `OPEN`."""
        before = self._outside.num_chars
        self._add_text(self._outside.feed(text.encode()), parts)
        if not self._outside.is_stopped:
            return ""
        num_taken = self._outside.num_released + len(OPEN) - before
        self._inside, self._outside = "", TextStream((OPEN,))
        return text[num_taken:]

    def _feed_inside(self, text: str, parts: list[Part]) -> str:
        """What is left of `text`, after `CLOSE`."""
        assert self._inside is not None
        body, closing, rest = (self._inside + text).partition(CLOSE)
        if not closing:
            self._inside = body
            return ""
        self._end_call(body, closing, parts)
        return rest

    def _end_call(self, body: str, closing: str, parts: list[Part]) -> None:
        self._inside = None
        call = parse_call(body)
        if call is None:
            self._add_text(OPEN + body + closing, parts)
        else:
            parts.append(call)
            self.num_calls += 1

    def _add_text(self, text: str, parts: list[Part]) -> None:
        """White space around calls is no content."""
        if text and (text.strip() or not self.num_calls):
            parts.append(text)

    def finish(self) -> list[Part]:
        """The rest; a last call may lack its end."""
        parts: list[Part] = []
        if self._inside is not None:
            self._end_call(self._inside, "", parts)
        self._add_text(self._outside.finish(), parts)
        return parts


def parse_call(body: str) -> CalledTool | None:
    """None: it is no call."""
    try:
        call = json.loads(body)
        name, arguments = call["name"], call.get("arguments", {})
        name.encode()
        return CalledTool(name, json.dumps(arguments, allow_nan=False)) if isinstance(arguments, dict) else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
