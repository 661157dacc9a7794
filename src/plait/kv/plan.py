"""Where one engine's lower tiers lie: decided by the controller, carried out by the engine's process."""

from collections.abc import Callable

import msgspec

from plait.kv.block_store import BlockStore
from plait.kv.cold_tier import ColdTier
from plait.kv.disk_store import DiskStore
from plait.kv.guarded_store import GuardedStore
from plait.kv.host_tier import HostTier
from plait.kv.mooncake_store import MooncakeStore, library, own_address
from plait.kv.segment import HEADER_BYTES, PAGE_BYTES, WAYS
from plait.kv.store_tier import StoreTier
from plait.kv.tiers import LowerTiers

MOONCAKE_BUFFER_BYTES = 64 * 2**20
"""For transfers under way, in each engine's process."""


class StorePlan(msgspec.Struct, frozen=True):
    """The store between nodes: folders that all nodes see, this engine's and those of all others, or a Mooncake `master`.

    `num_bytes`: this engine's share of it.
    """

    num_bytes: int
    timeout_s: float
    own_folder: str = ""
    other_folders: tuple[str, ...] = ()
    master: str = ""
    protocol: str = "tcp"
    device: str = ""
    namespace: str = ""

    def open(self, payload_bytes: int) -> StoreTier:
        """Returns at once, whether the store can be reached or not. ConfigError if its library is not installed."""
        name, opened = (f"at {self.master}", self._open_mooncake()) if self.master else (f"in {self.own_folder}", self._open_folder)
        return StoreTier(GuardedStore(name, opened, self.timeout_s), self.num_bytes, payload_bytes)

    def _open_folder(self) -> BlockStore:
        return DiskStore(self.own_folder, self.num_bytes, self.other_folders)

    def _open_mooncake(self) -> Callable[[], BlockStore]:
        library()
        return lambda: MooncakeStore(
            self.master, own_address(self.master), self.num_bytes, MOONCAKE_BUFFER_BYTES, self.protocol, self.device, self.namespace
        )


class TierPlan(msgspec.Struct, frozen=True):
    """Paths of shared memory (`SharedMemory.path`): this engine's, and those of all others of its machine.

    Without a path the engine makes `memory_bytes` that no other reads. Folders as with memory; no folder, no disk tier.
    """

    own_memory: str = ""
    other_memories: tuple[str, ...] = ()
    own_folder: str = ""
    other_folders: tuple[str, ...] = ()
    disk_bytes: int = 0
    memory_bytes: int = 0
    store: StorePlan | None = None

    def open(self, payload_bytes: int, block_tokens: int) -> LowerTiers:
        """OSError if the memory is gone or the folder cannot be made, ConfigError if the store's library is not installed."""
        host = self._open_host(payload_bytes)
        disk = DiskStore(self.own_folder, self.disk_bytes, self.other_folders) if self.own_folder else None
        store = self.store.open(payload_bytes) if self.store is not None else None
        return LowerTiers(host, ColdTier([disk], self.disk_bytes) if disk else None, block_tokens, store)

    def _open_host(self, payload_bytes: int) -> HostTier:
        if self.own_memory:
            return HostTier.attach(self.own_memory, self.other_memories, payload_bytes)
        return HostTier.alone(self.memory_bytes, payload_bytes)


def memory_bytes(num_tokens: int, token_bytes: int, block_tokens: int) -> int:
    """Size of the shared memory that holds the blocks of so many tokens, `token_bytes` each (all layers)."""
    num_blocks = -(-num_tokens // (block_tokens * WAYS)) * WAYS
    return PAGE_BYTES + num_blocks * (HEADER_BYTES + block_tokens * token_bytes)
