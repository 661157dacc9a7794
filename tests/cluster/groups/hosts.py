"""A worker group's process without the process: a host with real models, driven by hand."""

from pathlib import Path
from typing import Any, TypeVar

import torch

from plait.cluster.groups.group_host import GroupHost
from plait.cluster.groups.group_memory import GroupMemory
from plait.cluster.groups.messages import (
    CallOver,
    ConfigureGroup,
    FromDeployment,
    FromGroup,
    Host,
    Pass,
    Prefetch,
    Prefetched,
    RunCall,
    Switch,
    Switched,
    Unhost,
)
from plait.cluster.messages import ROLLOUT, TRAIN, Busy, ChunksDone, Configure, EngineStats, Starting, SubmitChunks, ToWorker
from plait.models.tiny import make_tiny_model
from plait.residency.tier import Tier
from plait.types.chunks import Chunk, ChunkResult
from plait.types.policy import PolicyVersion
from plait.types.sampling import SamplingParams

Frame = TypeVar("Frame")


def group_settings(folder: Path, device_bytes: int = 1 << 40, host_bytes: int | None = None, disk_bytes: int = 0) -> ConfigureGroup:
    return ConfigureGroup(
        name="group", threads=1, device="cpu", device_bytes=device_bytes, host_bytes=host_bytes, host_folder=str(folder / "host"),
        folder=str(folder / "disk"), disk_bytes=disk_bytes,
    )  # fmt: skip


def model_of(folder: Path, seed: int) -> Path:
    path = folder / f"model-{seed}"
    return path if path.exists() else make_tiny_model(path, seed=seed, hidden_size=128, intermediate_size=256 + 64 * seed)


def settings_of(model: Path, *roles: str) -> Configure:
    return Configure(
        name="worker", roles=roles, model_path=str(model), dtype="float32", device="cpu", threads=1, max_context_tokens=128,
        max_rows=4, slot_tokens=512, pool_tokens=512, batch_invariant="off", micro_batch_tokens=2048, checkpoint_layers=False,
        num_tasks=1,
    )  # fmt: skip


class DrivenHost:
    def __init__(self, folder: Path, **budgets: Any) -> None:
        self.folder, self.said = folder, list[FromGroup]()
        self.memory = GroupMemory(group_settings(folder, **budgets), torch.device("cpu"))
        self.host = GroupHost(self.said.append, self.memory)
        self._num_calls = 0

    def add(self, deployment: str, seed: int = 0, roles: tuple[str, ...] = (ROLLOUT, TRAIN)) -> Any:
        """What it says of it: Ready or StartFailed."""
        return self._told(Host("host", deployment, settings_of(model_of(self.folder, seed), *roles)))[0]

    def call(self, deployment: str, message: ToWorker) -> Any:
        """On the device first, unless it is there; the answer."""
        self.bring(deployment)
        self._num_calls += 1
        said = self._told(RunCall(f"{self._num_calls}", deployment, message))
        return said[0] if said else None

    def bring(self, deployment: str, park: tuple[str, ...] = ()) -> Switched | None:
        if self.host.states[deployment].is_resident:
            return None
        self._told(Switch(park, deployment))
        return next(frame for frame in self.said if isinstance(frame, Switched))

    def sample(self, deployment: str, *chunks: Chunk) -> list[ChunkResult]:
        self.bring(deployment)
        done = [said for said in self._told(Pass(deployment, SubmitChunks(chunks))) if isinstance(said, ChunksDone)]
        return [result for message in done for result in message.results]

    def prefetch(self, deployment: str, *leaving: str) -> None:
        """Until it is there, or has found no room."""
        self._told(Prefetch(deployment, leaving))

    def remove(self, deployment: str) -> None:
        self._told(Unhost(deployment))

    def _told(self, frame: Any) -> list[Any]:
        """Until there is nothing more to do; the accounts are checked on the way."""
        self.said.clear()
        self.host.handle(frame)
        while self.host.has_work:
            self.host.work()
        self.check()
        messages = [said.message for said in self.said if isinstance(said, FromDeployment)]
        return [message for message in messages if not isinstance(message, Busy | EngineStats | Starting)]

    def check(self) -> None:
        """What is on the device fits, in every account of it. Nobody is on the way there then."""
        self.host.settle()
        states = self.host.states.values()
        resident = [state for state in states if state.is_resident]
        shared_bytes = sum(state.shared_bytes for state in resident) if len(resident) > 1 else 0
        assert sum(state.held_bytes for state in resident) <= self.memory.device_bytes + shared_bytes
        assert self.memory.used_bytes()[Tier.DEVICE] <= self.memory.device_bytes
        reported = [frame for frame in self.said if isinstance(frame, CallOver | Switched | Prefetched)]
        for frame in reported[-1:]:
            assert frame.resident == tuple(state.deployment for state in resident)
            assert frame.footprints == {state.deployment: state.num_bytes for state in states}


def first_chunk(request_id: str, budget_tokens: int = 8, seed: int = 5) -> Chunk:
    sampling = SamplingParams(64, seed=seed)
    return Chunk(request_id, PolicyVersion("local", "base", 0), tuple(range(5, 45)), budget_tokens, sampling)


def next_chunk(chunk: Chunk, result: ChunkResult, request_id: str) -> Chunk:
    return Chunk(
        request_id, chunk.policy, chunk.context_tokens + result.tokens, chunk.budget_tokens, chunk.sampling,
        generated_tokens=chunk.generated_tokens + len(result.tokens),
    )  # fmt: skip
