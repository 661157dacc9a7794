"""Samplers: the base model, or one version of an adapter, as a source of samples that never changes."""

import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from plait.server.database import checkpoints, samplers
from plait.server.database.database import Database
from plait.server.database.tables import Sampler
from plait.server.errors import NotFound, ServiceError, not_served
from plait.server.names import sampler_id_of
from plait.server.principal import Principal
from plait.server.sessions import Sessions
from plait.server.tinker_path import parse_tinker_path
from plait.server.wire.models.sampling import CreateSamplingSessionRequest
from plait.types.policy import AdapterRef, PolicyVersion

BASE_TASK = "base"
"""Name of the base model's own policy."""
MAX_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class SamplerInfo:
    sampler_id: str
    tenant_id: str
    session_id: str
    base_model: str
    policy: PolicyVersion
    """Equal for all samplers of one version of one model, so that they share what the cache holds of a prompt."""
    adapter: AdapterRef | None = None
    model_path: str | None = None


class Samplers:
    def __init__(self, database: Database, sessions: Sessions, base_models: tuple[str, ...]) -> None:
        self._database, self._sessions, self._base_models = database, sessions, base_models
        self._known: OrderedDict[str, SamplerInfo] = OrderedDict()
        self._used_s: dict[str, float] = {}
        """On the monotonic clock; of those that are asked for."""
        self._started_s = time.monotonic()

    async def create(self, principal: Principal, request: CreateSamplingSessionRequest) -> str:
        """Again with the same number: the same sampler."""
        self._sessions.owned(request.session_id, principal.tenant_id)
        if request.model_path is None:
            self.check_base(request.base_model or "")
        else:
            parse_tinker_path(request.model_path)
        return await self._database.run(lambda session: _create(session, principal.tenant_id, request))

    def check_base(self, name: str) -> None:
        if name not in self._base_models:
            raise not_served(name, self._base_models)

    def last_used_s(self, sampler_id: str) -> float:
        """On the monotonic clock: when it was asked for, if by nobody since the start, then."""
        return self._used_s.get(sampler_id, self._started_s)

    def forget(self, sampler_id: str) -> None:
        """It is no more."""
        self._known.pop(sampler_id, None)
        self._used_s.pop(sampler_id, None)

    async def get(self, sampler_id: str, tenant_id: str) -> SamplerInfo:
        """Raises NotFound."""
        info = self._known.get(sampler_id)
        if info is None:
            row = await self._database.run(lambda session: samplers.get_sampler(session, sampler_id, None))
            if row is None:
                raise NotFound("sampler", sampler_id)
            info = self._known[sampler_id] = _info(row)
            if len(self._known) > MAX_REMEMBERED:
                self._known.popitem(last=False)
        if info.tenant_id != tenant_id:
            raise NotFound("sampler", sampler_id)
        if info.adapter is not None and info.model_path is None:
            self._used_s[sampler_id] = time.monotonic()
        return info


def _create(session: Session, tenant_id: str, request: CreateSamplingSessionRequest) -> str:
    """In one transaction: a checkpoint's files stay where a sampler was stored while the checkpoint was."""
    sampler_id = sampler_id_of(request.session_id, request.sampling_session_seq_id)
    row = _row(session, tenant_id, request, sampler_id)
    known = samplers.get_sampler(session, sampler_id, tenant_id)
    if known is None:
        samplers.add_sampler(session, row)
    elif (known.base_model, known.model_path, known.digest) != (row.base_model, row.model_path, row.digest):
        raise ServiceError(f"sampler {sampler_id!r} exists with another model.", "Give each sampler a number of its own.")
    return sampler_id


def _row(session: Session, tenant_id: str, request: CreateSamplingSessionRequest, sampler_id: str) -> Sampler:
    common: dict[str, Any] = {"sampler_id": sampler_id, "session_id": request.session_id, "tenant_id": tenant_id}
    if request.model_path is None:
        return Sampler(**common, base_model=request.base_model or "", created_s=time.time(), policy_task=BASE_TASK)
    checkpoint = checkpoints.get_checkpoint(session, request.model_path, tenant_id, time.time())
    if checkpoint is None:
        raise NotFound("checkpoint", request.model_path)
    return Sampler(
        **common, base_model=checkpoint.base_model, created_s=time.time(), model_path=checkpoint.tinker_path,
        policy_task=checkpoint.model_id, policy_version=checkpoint.version, folder=checkpoint.folder, digest=checkpoint.digest,
    )  # fmt: skip


def _info(row: Sampler) -> SamplerInfo:
    policy = PolicyVersion(row.tenant_id, row.policy_task, row.policy_version)
    adapter = AdapterRef(policy, row.folder, row.digest) if row.folder else None
    return SamplerInfo(row.sampler_id, row.tenant_id, row.session_id, row.base_model, policy, adapter, row.model_path)
