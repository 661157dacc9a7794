"""Chat messages."""

from typing import Any

import msgspec


class ToolCall(msgspec.Struct, frozen=True):
    """A function that an assistant's message calls."""

    name: str
    arguments: dict[str, Any]
    call_id: str = ""


class Message(msgspec.Struct, frozen=True):
    role: str
    """"system", "user", "assistant" or "tool"."""
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    """Of an assistant's message."""
    tool_call_id: str = ""
    """Of a tool's message: the call that it answers."""
    name: str = ""
    """Of a tool's message: the function."""
