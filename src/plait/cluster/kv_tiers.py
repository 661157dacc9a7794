"""The tiers of cache below those of a deployment's engines: who makes them, and how large they are. Torch-free.

Shared memory is made here, so that it outlives an engine that is lost and ends with the controller. A replaced engine finds what
the lost one had stored. Each engine writes its own share and reads all.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from plait.cluster.messages import ROLLOUT, Configure
from plait.cluster.workers import ComputeSettings
from plait.config.explain import BYTES_PER_VALUE
from plait.config.run import EngineSettings
from plait.kv.disk_store import clear_folder
from plait.kv.plan import TierPlan, memory_bytes
from plait.kv.pool import BLOCK_TOKENS
from plait.kv.shared_memory import SharedMemory
from plait.models.hf_config import read_config


class KvTiers:
    """`token_bytes`: of one token in all layers."""

    def __init__(self, settings: EngineSettings, engines: Sequence[str], token_bytes: int, folder: Path) -> None:
        self._folder = folder
        clear_folder(folder)  # Of a run that was killed.
        share = -(-settings.host_tokens // len(engines))
        num_bytes = memory_bytes(share, token_bytes, BLOCK_TOKENS)
        self._memories = {name: SharedMemory(num_bytes) for name in engines}
        self._folders = {name: str(folder / name) if settings.disk_tokens else "" for name in engines}
        self._disk_bytes = settings.disk_tokens * token_bytes // len(engines)

    def plan(self, engine: str) -> TierPlan:
        memories = {name: memory.path for name, memory in self._memories.items()}
        folders = {name: folder for name, folder in self._folders.items() if folder}
        return TierPlan(
            own_memory=memories.pop(engine), other_memories=tuple(memories.values()), own_folder=folders.pop(engine, ""),
            other_folders=tuple(folders.values()), disk_bytes=self._disk_bytes,
        )  # fmt: skip

    def close(self) -> None:
        for memory in self._memories.values():
            memory.close()
        clear_folder(self._folder)


def make_tiers(settings: ComputeSettings, model_path: str, configured: Sequence[Configure], folder: Path | None) -> KvTiers | None:
    """None: the settings ask for none."""
    if not settings.engine.host_tokens:
        return None
    engines = [one.name for one in configured if ROLLOUT in one.roles]
    token_bytes = read_config(Path(model_path)).cache_bytes_per_token(BYTES_PER_VALUE[settings.model.dtype])
    return KvTiers(settings.engine, engines, token_bytes, folder or Path(tempfile.gettempdir()) / "plait-kv")


def with_tiers(configuration: Configure, tiers: KvTiers) -> Configure:
    return replace(configuration, tiers=tiers.plan(configuration.name)) if ROLLOUT in configuration.roles else configuration
