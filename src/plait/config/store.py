"""A store of cached blocks that rollout engines on several nodes share."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from plait.config.base import Settings


class StoreSettings(Settings):
    """Engines put the cache of every chunk there, and read what they lack, wherever it was computed. It lies below the cache of
    `engine.host_tokens`."""

    kind: Literal["file", "mooncake"]
    """"file": files in the folder of the run, which all nodes see; "mooncake": a Mooncake store. Needs plait[mooncake]."""
    tokens: Annotated[int, Field(ge=16)]
    """Most that it holds, of all engines together. "mooncake": memory that rollout workers lend to the store."""
    address: str = ""
    """Of `mooncake_master`, as "host:port"."""
    protocol: Literal["tcp", "rdma"] = "tcp"
    """How "mooncake" moves blocks."""
    device: str = ""
    """RDMA devices, separated by commas."""
    timeout_s: Annotated[float, Field(gt=0, le=60)] = 1.0
    """Longest that a call, or a chunk that waits for blocks, takes. Then the chunk computes what it lacks, and a store that does
    not answer is left alone for some seconds."""


def store_problems(store: StoreSettings, key: str) -> Iterator[str]:
    """What cannot be, of the store alone."""
    if store.kind == "mooncake" and not _is_address(store.address):
        yield f'{key}.address = "{store.address}" is not where mooncake_master is: give "host:port"'
    if store.kind == "mooncake" and store.device and store.protocol != "rdma":
        yield f'{key}.device = "{store.device}" has no effect with {key}.protocol = "{store.protocol}": choose "rdma"'
    for name in ("address", "protocol", "device") if store.kind != "mooncake" else ():
        if (value := getattr(store, name)) != StoreSettings.model_fields[name].default:
            yield f'{key}.{name} = "{value}" has no effect with {key}.kind = "{store.kind}": remove it, or choose "mooncake"'


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdecimal() and 0 < int(port) < 2**16
