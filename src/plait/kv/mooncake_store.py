"""Blocks in a Mooncake store, which the nodes of a cluster share (optional extra `mooncake`; TCP or RDMA).

Every process lends some memory to the store and a master says where things lie; the store gives up what was not used for long by
itself, and loses what lies in a process that ends. While the master is gone calls take seconds, and setting up takes minutes.
"""

import errno
import os
import socket
from importlib.util import find_spec
from typing import Any

from plait.kv.keys import Key
from plait.types.errors import ConfigError

_NO_ROOM = -200
_NOT_FOUND = -704
_REMEDY = "Install plait[mooncake], and the system libraries libibverbs1 librdmacm1 libnuma1 libcurl4 liburing2."


class MooncakeStore:
    """`master` is "host:port" of `mooncake_master`; `host` the address of this node under which others reach it.

    Those with one `namespace` see the same blocks.
    """

    used_bytes = 0
    """The store's memory is accounted for by its master."""

    def __init__(
        self,
        master: str,
        host: str,
        lent_bytes: int,
        buffer_bytes: int,
        protocol: str = "tcp",
        device: str = "",
        namespace: str = "",
    ) -> None:
        """Lend `lent_bytes`; `buffer_bytes` is for transfers. OSError if the master cannot be reached."""
        self._prefix = f"plait-kv-{namespace}-" if namespace else "plait-kv-"
        self._store: Any = library()()
        self._check(self._store.setup(host, "P2PHANDSHAKE", lent_bytes, buffer_bytes, protocol, device, master), "set up")

    def _check(self, code: int, action: str) -> None:
        if code < 0:
            number = errno.ENOSPC if code == _NO_ROOM else errno.EIO
            raise OSError(number, f"the Mooncake store could not {action}: code {code}")

    def _name(self, key: Key) -> str:
        return self._prefix + key.hex()

    def get(self, key: Key) -> bytes | None:
        """None also if it could not be served: the library does not tell them apart."""
        return self._store.get(self._name(key)) or None

    def put(self, key: Key, data: bytes) -> None:
        """Fine if it is there: blocks of one key are the same. OSError(ENOSPC) while the store makes room."""
        self._check(self._store.put(self._name(key), data), "put")

    def remove(self, key: Key) -> None:
        """Also what was read a moment ago, which the store would keep for some seconds."""
        code = self._store.remove(self._name(key), True)
        self._check(0 if code == _NOT_FOUND else code, "remove")

    def close(self) -> None:
        self._store.close()


def check_installed() -> None:
    """ConfigError if the library is not here. Nothing is loaded, and nobody is asked."""
    try:
        is_here = find_spec("mooncake.store") is not None
    except ModuleNotFoundError:
        is_here = False
    if not is_here:
        raise ConfigError('[engine.store] kind = "mooncake" needs the package mooncake, which is not installed.', _REMEDY)


def library() -> Any:
    """The client's class; ConfigError if it is not installed."""
    os.environ.setdefault("GLOG_minloglevel", "3")  # It tells of every failure on stderr, and Plait does once.
    try:
        from mooncake.store import MooncakeDistributedStore
    except ImportError as error:
        raise ConfigError(f"the store between nodes needs mooncake, which cannot be imported: {error}.", _REMEDY) from error
    return MooncakeDistributedStore


def own_address(master: str) -> str:
    """The address of this node on the way to `master` ("host:port"). Nothing is sent. OSError if there is no way."""
    host, _, port = master.rpartition(":")
    family, kind, protocol, _, address = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])
