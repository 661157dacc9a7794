"""A store of cached blocks that rollout engines on several nodes share."""

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
    """Longest that a call, or a chunk that waits for blocks, takes. After that the chunk computes what it lacks, and a store that does
    not answer is left alone for some seconds."""
