"""The tiers of cache below those of a deployment's engines: who makes them, and how large they are. Torch-free.

- Engines of one machine: shared memory is made here, so that it outlives an engine that is lost and ends with the controller. A
  replaced engine finds what the lost one had stored. Each engine writes its own share and reads all.
- Engines that may be on several machines (Ray): each makes its share of memory itself and reads no other. What they share is the
  store between nodes, if the settings ask for one.
"""

import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from plait.cluster.configurations import ComputeSettings
from plait.cluster.messages import ROLLOUT, Configure
from plait.config.explain import BYTES_PER_VALUE
from plait.config.run import EngineSettings
from plait.config.store import StoreSettings
from plait.kv.disk_store import clear_folder
from plait.kv.mooncake_store import check_installed
from plait.kv.plan import StorePlan, TierPlan, memory_bytes
from plait.kv.pool import BLOCK_TOKENS
from plait.kv.shared_memory import SharedMemory
from plait.models.hf_config import read_config
from plait.rollout.holdings import Holdings
from plait.rollout.prefix_routing import PrefixRouter
from plait.rollout.routing import Router

STORE_FOLDER = "store"


class KvTiers:
    """`token_bytes`: of one token in all layers. `is_apart`: engines cannot read each other's memory."""

    def __init__(
        self, settings: EngineSettings, engines: Sequence[str], token_bytes: int, folder: Path, *, is_apart: bool = False
    ) -> None:
        self._folder, self._engines, self._store = folder.absolute(), tuple(engines), settings.store
        self._token_bytes = token_bytes
        clear_folder(folder)  # Of a run that was killed.
        share = -(-settings.host_tokens // len(engines))
        self._memory_bytes = memory_bytes(share, token_bytes, BLOCK_TOKENS)
        self._memories = {} if is_apart else {name: SharedMemory(self._memory_bytes) for name in engines}
        self._has_disk = settings.disk_tokens > 0
        self._disk_bytes = settings.disk_tokens * token_bytes // len(engines)
        self._namespace = secrets.token_hex(8)
        """Of this deployment's blocks in a store that others may use."""

    def plan(self, engine: str) -> TierPlan:
        memories = {name: memory.path for name, memory in self._memories.items()}
        own_folder, other_folders = self._folders(self._folder, engine) if self._has_disk else ("", ())
        return TierPlan(
            own_memory=memories.pop(engine, ""), other_memories=tuple(memories.values()), own_folder=own_folder,
            other_folders=other_folders, disk_bytes=self._disk_bytes, memory_bytes=self._memory_bytes,
            store=None if self._store is None else self._store_plan(self._store, engine),
        )  # fmt: skip

    def _folders(self, parent: Path, engine: str) -> tuple[str, tuple[str, ...]]:
        """The engine's own, and all others'."""
        return str(parent / engine), tuple(str(parent / name) for name in self._engines if name != engine)

    def _store_plan(self, store: StoreSettings, engine: str) -> StorePlan:
        num_bytes = store.tokens * self._token_bytes // len(self._engines)
        if store.kind == "mooncake":
            return StorePlan(
                num_bytes, store.timeout_s, master=store.address, protocol=store.protocol, device=store.device,
                namespace=self._namespace,
            )  # fmt: skip
        own_folder, other_folders = self._folders(self._folder / STORE_FOLDER, engine)
        return StorePlan(num_bytes, store.timeout_s, own_folder, other_folders)

    def close(self) -> None:
        for memory in self._memories.values():
            memory.close()
        clear_folder(self._folder)


def make_tiers(settings: ComputeSettings, model_path: str, configured: Sequence[Configure], folder: Path | None) -> KvTiers | None:
    """None: the settings ask for none. ConfigError before anything is started if what they ask for is not installed."""
    if not settings.engine.host_tokens:
        return None
    if settings.engine.store is not None and settings.engine.store.kind == "mooncake":
        check_installed()
    engines = [one.name for one in configured if ROLLOUT in one.roles]
    token_bytes = read_config(Path(model_path)).cache_bytes_per_token(BYTES_PER_VALUE[settings.model.dtype])
    where = folder or Path(tempfile.gettempdir()) / "plait-kv"
    return KvTiers(settings.engine, engines, token_bytes, where, is_apart=are_apart(settings))


def are_apart(settings: ComputeSettings) -> bool:
    """Whether engines may run on several machines."""
    return settings.workers.executor == "ray"


def make_router(settings: ComputeSettings) -> Router:
    """By what engines tell of their caches, where that is of use: there are several, or tiers below the one."""
    is_of_use = settings.workers.rollout_engines > 1 or settings.engine.host_tokens > 0
    does_tell = settings.engine.kind == "plait"
    return PrefixRouter(Holdings(is_apart=are_apart(settings))) if does_tell and is_of_use else Router()


def with_tiers(configuration: Configure, tiers: KvTiers) -> Configure:
    return replace(configuration, tiers=tiers.plan(configuration.name)) if ROLLOUT in configuration.roles else configuration
