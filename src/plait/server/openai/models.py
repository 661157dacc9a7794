"""What a client may put in `model`: a base model or alias, a checkpoint's `tinker://` path, a sampler's id."""

import time
from dataclasses import replace

from plait.server.checkpoints import CheckpointStore
from plait.server.database import checkpoints
from plait.server.database.tables import Checkpoint
from plait.server.errors import NotFound, ServiceError
from plait.server.openai.responses import ModelList, ModelObject
from plait.server.samplers import BASE_TASK, SamplerInfo, Samplers
from plait.server.tinker_path import SCHEME
from plait.types.policy import AdapterRef, PolicyVersion

MAX_LISTED = 1000
"""Checkpoints, the newest."""
SAMPLED_KINDS = ("training", "sampler")
OWNER = "plait"


class ModelNames:
    def __init__(self, samplers: Samplers, store: CheckpointStore, base_models: tuple[str, ...], created_s: float) -> None:
        self._samplers, self._store, self._base_models, self._created_s = samplers, store, base_models, created_s

    async def resolve(self, name: str, tenant_id: str, request_id: str) -> SamplerInfo:
        """A sampler for one request, called as the request is. Raises NotFound."""
        if name in self._base_models:
            return SamplerInfo(request_id, tenant_id, "", name, PolicyVersion(tenant_id, BASE_TASK, 0))
        if name.startswith(SCHEME):
            return _sampler(await self._checkpoint(name, tenant_id), tenant_id, request_id)
        try:
            return replace(await self._samplers.get(name, tenant_id), sampler_id=request_id)
        except NotFound:
            raise NotFound(
                "model", name, f"Served: {', '.join(self._base_models)}; GET /v1/models lists your checkpoints."
            ) from None

    async def _checkpoint(self, path: str, tenant_id: str) -> Checkpoint:
        try:
            found = await self._store.get(path, tenant_id)
        except ServiceError:
            raise NotFound("model", path) from None
        if found.kind not in SAMPLED_KINDS:
            raise NotFound("model", path)
        return found

    async def get(self, name: str, tenant_id: str) -> ModelObject:
        """Raises NotFound."""
        if name.startswith(SCHEME):
            return _object(await self._checkpoint(name, tenant_id))
        await self.resolve(name, tenant_id, "")
        return self._base_object(name)

    async def list(self, tenant_id: str) -> ModelList:
        """Base models, then the tenant's own checkpoints."""
        own, _ = await self._store.database.run(
            lambda session: checkpoints.list_checkpoints(session, tenant_id, time.time(), MAX_LISTED, 0)
        )
        listed = [_object(checkpoint) for checkpoint in own if checkpoint.kind in SAMPLED_KINDS]
        return ModelList(data=[*map(self._base_object, self._base_models), *listed], object="list")

    def _base_object(self, name: str) -> ModelObject:
        return ModelObject(id=name, created=int(self._created_s), owned_by=OWNER, object="model")


def _object(checkpoint: Checkpoint) -> ModelObject:
    return ModelObject(id=checkpoint.tinker_path, created=int(checkpoint.created_s), owned_by=checkpoint.tenant_id, object="model")


def _sampler(checkpoint: Checkpoint, tenant_id: str, request_id: str) -> SamplerInfo:
    policy = PolicyVersion(tenant_id, checkpoint.model_id, checkpoint.version)
    adapter = AdapterRef(policy, checkpoint.folder, checkpoint.digest)
    return SamplerInfo(request_id, tenant_id, "", checkpoint.base_model, policy, adapter, checkpoint.tinker_path)
