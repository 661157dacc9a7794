"""Messages as msgpack: one union of tagged structs per direction of a link."""

from typing import Any, Generic, TypeVar

import msgspec

Message = TypeVar("Message")


class Codec(Generic[Message]):
    """Encodes and decodes the structs of one union; every member needs a `tag`.

    `Codec[Ping | Pong](Ping | Pong)`. `decode` raises msgspec.ValidationError for anything that is not in the union.
    """

    def __init__(self, union: Any) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(union)

    def encode(self, message: Message) -> bytes:
        return self._encoder.encode(message)

    def decode(self, data: bytes) -> Message:
        return self._decoder.decode(data)
