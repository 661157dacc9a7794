"""Where one engine's lower tiers lie: decided by the controller, carried out by the engine's process."""

import msgspec

from plait.kv.cold_tier import ColdTier
from plait.kv.disk_store import DiskStore
from plait.kv.host_tier import HostTier
from plait.kv.segment import HEADER_BYTES, PAGE_BYTES, WAYS
from plait.kv.tiers import LowerTiers


class TierPlan(msgspec.Struct, frozen=True):
    """Paths of shared memory (`SharedMemory.path`): this engine's, and those of all others of its machine.

    Folders likewise; no folder, no disk tier.
    """

    own_memory: str
    other_memories: tuple[str, ...] = ()
    own_folder: str = ""
    other_folders: tuple[str, ...] = ()
    disk_bytes: int = 0

    def open(self, payload_bytes: int, block_tokens: int) -> LowerTiers:
        """OSError if the memory is gone or the folder cannot be made."""
        host = HostTier.attach(self.own_memory, self.other_memories, payload_bytes)
        store = DiskStore(self.own_folder, self.disk_bytes, self.other_folders) if self.own_folder else None
        return LowerTiers(host, ColdTier([store], self.disk_bytes) if store else None, block_tokens)


def memory_bytes(num_tokens: int, token_bytes: int, block_tokens: int) -> int:
    """Size of the shared memory that holds the blocks of so many tokens, `token_bytes` each (all layers)."""
    num_blocks = -(-num_tokens // (block_tokens * WAYS)) * WAYS
    return PAGE_BYTES + num_blocks * (HEADER_BYTES + block_tokens * token_bytes)
