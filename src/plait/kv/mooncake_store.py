"""Blocks in a Mooncake store, which the nodes of a cluster share (optional extra `mooncake`; TCP or RDMA).

Every process lends some memory to the store and a master says where things lie; the store gives up what was not used for long,
by itself, and keeps for some seconds what was read a moment ago, even if it is removed (keys name the content: it does no harm).
"""

import errno
from typing import Any

from plait.kv.keys import Key
from plait.types.errors import ConfigError

_NOT_FOUND = -704
_IN_USE = -706
_NAMESPACE = "plait-kv-"


class MooncakeStore:
    """`master` is "host:port" of `mooncake_master`; `host` the address of this node under which others reach it."""

    used_bytes = 0
    """The store's memory is accounted for by its master."""

    def __init__(self, master: str, host: str, lent_bytes: int, buffer_bytes: int, protocol: str = "tcp", device: str = "") -> None:
        """Lend `lent_bytes`; `buffer_bytes` is for transfers. OSError if the master cannot be reached."""
        self._store: Any = _library()()
        self._check(self._store.setup(host, "P2PHANDSHAKE", lent_bytes, buffer_bytes, protocol, device, master), "set up")

    def _check(self, code: int, action: str) -> None:
        if code < 0:
            raise OSError(errno.EIO, f"the Mooncake store could not {action}: code {code}")

    def get(self, key: Key) -> bytes | None:
        return self._store.get(_name(key)) or None

    def put(self, key: Key, data: bytes) -> None:
        """Fine if it is there: blocks of one key are the same."""
        self._check(self._store.put(_name(key), data), "put")

    def remove(self, key: Key) -> None:
        code = self._store.remove(_name(key))
        self._check(0 if code in (_NOT_FOUND, _IN_USE) else code, "remove")

    def close(self) -> None:
        self._store.close()


def _library() -> Any:
    try:
        from mooncake.store import MooncakeDistributedStore
    except ImportError as error:
        raise ConfigError(
            f"the store between nodes needs mooncake, which cannot be imported: {error}.",
            "Install plait[mooncake], and the system libraries libibverbs1 librdmacm1 libnuma1 libcurl4 liburing2.",
        ) from error
    return MooncakeDistributedStore


def _name(key: Key) -> str:
    return _NAMESPACE + key.hex()
