"""Chat messages."""

import msgspec


class Message(msgspec.Struct, frozen=True):
    role: str
    """"system", "user", "assistant" or "tool"."""
    content: str
