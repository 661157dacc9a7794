"""Saving and loading the weights of a model: the calls that make checkpoints and samplers."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from plait.cluster.model_messages import LoadModel, SaveModel
from plait.server.call import Call, CallError, CallResult
from plait.server.checkpoints import CheckpointStore
from plait.server.database import checkpoints, samplers
from plait.server.database.tables import Checkpoint, Sampler
from plait.server.folders import DataFolders
from plait.server.model_runner import ModelRunner
from plait.server.names import sampler_id_of
from plait.server.tinker_path import SEGMENTS, TinkerPath
from plait.server.trained_kind import SHAPE_KEY
from plait.server.trainer_calls import TrainerCalls
from plait.server.wire.models.base import Response
from plait.server.wire.models.weights import (
    LoadWeightsRequest,
    LoadWeightsResponse,
    SaveWeightsExternalRequest,
    SaveWeightsExternalResponse,
    SaveWeightsForSamplerRequest,
    SaveWeightsForSamplerResponse,
    SaveWeightsRequest,
    SaveWeightsResponse,
)


class Saving:
    def __init__(
        self,
        trainer: TrainerCalls,
        folders: DataFolders,
        store: CheckpointStore,
        stored_bytes_limit: "StoredLimit",
        check_base: Callable[[str, str, str], None],
    ) -> None:
        """`check_base` raises PlaitError unless a checkpoint's base model, the second name, is that of a model, the third."""
        self._trainer, self._folders, self._store, self._limit = trainer, folders, store, stored_bytes_limit
        self._check_base = check_base

    async def save(self, runner: ModelRunner, call: Call) -> CallResult:
        request = SaveWeightsRequest.model_validate_json(call.payload)
        path = TinkerPath(call.model_id, "training", request.path or f"{call.seq_id:06d}")
        if not request.overwrite and await self._store.exists(path, runner.opening.tenant):
            raise CallError(f"checkpoint {path} exists. Choose another name, or save with overwrite=True.", is_user_error=True)
        saved = await self._checkpoint(runner, call, path, request.ttl_seconds, request.user_metadata, with_optimizer=True)
        return saved.result(SaveWeightsResponse(path=str(path)))

    async def save_for_sampler(self, runner: ModelRunner, call: Call) -> CallResult:
        request = SaveWeightsForSamplerRequest.model_validate_json(call.payload)
        if request.path is None:
            return await self._snapshot(runner, call, request)
        path = TinkerPath(call.model_id, "sampler", request.path)
        saved = await self._checkpoint(runner, call, path, request.ttl_seconds, request.user_metadata, with_optimizer=False)
        return saved.result(SaveWeightsForSamplerResponse(path=str(path)))

    async def save_external(self, runner: ModelRunner, call: Call) -> CallResult:
        request = SaveWeightsExternalRequest.model_validate_json(call.payload)
        if request.age_encryption_recipients:
            raise CallError("age_encryption_recipients: encryption is not served. Leave it out.", is_user_error=True)
        path = TinkerPath(call.model_id, "external", request.path)
        saved = await self._checkpoint(runner, call, path, request.ttl_seconds, None, with_optimizer=False)
        return saved.result(SaveWeightsExternalResponse(path=str(path), size_bytes=saved.row.size_bytes))

    async def load(self, runner: ModelRunner, call: Call) -> CallResult:
        request = LoadWeightsRequest.model_validate_json(call.payload)
        source = await self._store.get(request.path, runner.opening.tenant)
        self._check_base(request.path, source.base_model, runner.base_model)
        try:
            done = await self._trainer.call(LoadModel(call.model_id, call.seq_id, source.folder, request.optimizer))
        except CallError as error:
            if (await self._store.get(request.path, runner.opening.tenant)).folder != source.folder:
                raise CallError(f"checkpoint {request.path} was replaced meanwhile. Load it again.", is_user_error=True) from error
            raise
        runner.ref = done.ref
        return loaded(request.path, call.model_id, done.ref.policy.version)

    async def _snapshot(self, runner: ModelRunner, call: Call, request: SaveWeightsForSamplerRequest) -> CallResult:
        assert request.sampling_session_seq_id is not None
        tenant, sampler_id = runner.opening.tenant, sampler_id_of(runner.session_id, request.sampling_session_seq_id)
        await self._limit.check(tenant)
        folder = str(self._folders.snapshot(tenant, call.model_id, sampler_id))
        done = await self._trainer.call(SaveModel(call.model_id, call.seq_id, folder, with_optimizer=False))
        row = Sampler(
            sampler_id=sampler_id, session_id=runner.session_id, tenant_id=tenant, base_model=runner.base_model,
            created_s=time.time(), policy_task=call.model_id, policy_version=done.ref.policy.version, folder=folder,
            digest=done.ref.digest, size_bytes=done.size_bytes,
        )  # fmt: skip
        response = SaveWeightsForSamplerResponse(sampling_session_id=sampler_id).model_dump(exclude_none=True)
        return CallResult.of_json(response, effects=(lambda session: samplers.add_sampler(session, row),))

    async def _checkpoint(
        self,
        runner: ModelRunner,
        call: Call,
        path: TinkerPath,
        ttl_s: int | None,
        metadata: dict[str, str] | None,
        with_optimizer: bool,
    ) -> "_Saved":
        """Write the files of what is to be the checkpoint `path`. Each save has a folder of its own."""
        await self._limit.check(runner.opening.tenant)
        folder = self._folders.checkpoint(runner.opening.tenant, call.model_id, SEGMENTS[path.kind], f"{path.name}@{call.seq_id}")
        done = await self._trainer.call(SaveModel(call.model_id, call.seq_id, str(folder), with_optimizer))
        now_s, lora, training = time.time(), runner.opening.lora, runner.opening.training
        shape = {"rank": lora.rank, "alpha": lora.alpha, "target_modules": list(lora.target_modules), "seed": lora.seed}
        row = Checkpoint(
            tinker_path=str(path), tenant_id=runner.opening.tenant, model_id=call.model_id, kind=path.kind, name=path.name,
            folder=str(folder), digest=done.ref.digest, size_bytes=done.size_bytes, base_model=runner.base_model,
            lora=shape | ({SHAPE_KEY: training} if training == "full" else {}),
            created_s=now_s, version=done.ref.policy.version, has_optimizer=with_optimizer, user_metadata=metadata,
            expires_s=now_s + ttl_s if ttl_s is not None else None,
        )  # fmt: skip
        return _Saved(row)


@dataclass(frozen=True, slots=True)
class _Saved:
    """A checkpoint whose files are written and whose row is not stored yet."""

    row: Checkpoint
    replaced_folders: list[str] = field(default_factory=list)

    def result(self, response: Response) -> CallResult:
        content = response.model_dump(exclude_none=True)
        return CallResult.of_json(content, effects=(self._store,), replaced_folders=self.replaced_folders)

    def _store(self, session: Session) -> None:
        old = checkpoints.replace_checkpoint(session, self.row)
        self.replaced_folders[:] = [old.folder] if old is not None else []


class StoredLimit:
    """Refuses to store more once a tenant is over its quota."""

    def __init__(self, store: CheckpointStore, limit_of: Callable[[str], int | None]) -> None:
        self._store, self._limit_of = store, limit_of

    async def check(self, tenant_id: str) -> None:
        limit = self._limit_of(tenant_id)
        if limit is not None and (stored := await self._store.stored_bytes(tenant_id)) >= limit:
            raise CallError(
                f"stored_bytes is {stored}, and {limit} is the limit of this tenant. Delete checkpoints first.", is_user_error=True
            )


def loaded(path: str, model_id: str, version: int) -> CallResult:
    return CallResult.of_json(LoadWeightsResponse(path=path, model_id=model_id).model_dump(), version=version)
