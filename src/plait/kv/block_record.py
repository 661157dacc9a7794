"""A cached block outside the device: what it is, its bits, and a form of bytes that tells when they have changed."""

import struct
import zlib
from dataclasses import dataclass

from plait.kv.chain import IDENTITY_BYTES, Link
from plait.kv.keys import Key

_PREAMBLE = struct.Struct("<4sIQ")
"""Magic, checksum, bytes of payload."""
_MAGIC = b"PKV1"
OVERHEAD_BYTES = _PREAMBLE.size + IDENTITY_BYTES

Payload = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class BlockRecord:
    link: Link
    payload: Payload

    @property
    def checksum(self) -> int:
        """CRC-32 of identity and payload."""
        return zlib.crc32(self.payload, zlib.crc32(self.link.pack()))


def encode(record: BlockRecord) -> bytes:
    preamble = _PREAMBLE.pack(_MAGIC, record.checksum, len(record.payload))
    return b"".join((preamble, record.link.pack(), record.payload))


def decode(key: Key, data: bytes) -> BlockRecord | None:
    """The record that was encoded under this key; None if these are not its very bytes."""
    if len(data) < OVERHEAD_BYTES:
        return None
    magic, checksum, num_bytes = _PREAMBLE.unpack_from(data)
    record = BlockRecord(Link.unpack(data, _PREAMBLE.size), bytearray(memoryview(data)[OVERHEAD_BYTES:]))
    is_whole = magic == _MAGIC and num_bytes == len(record.payload) and record.link.key == key
    return record if is_whole and record.checksum == checksum else None
