"""What a place behind the host tier must do: keep bytes by key, as long as it likes."""

from typing import Protocol

from plait.kv.keys import Key


class BlockStore(Protocol):
    """A cache: it may lose anything at any time, and what it gives back is checked. Called from background threads, and from
    the engine's; a call raises OSError if it cannot be served, and nothing else."""

    def get(self, key: Key) -> bytes | None: ...

    def put(self, key: Key, data: bytes) -> None: ...

    def remove(self, key: Key) -> None:
        """Fine if it is gone."""
        ...

    @property
    def used_bytes(self) -> int: ...

    def close(self) -> None: ...
