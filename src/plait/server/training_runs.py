"""Models and their checkpoints as resources.

A published checkpoint publishes its run's description: who asks for runs that are "accessible" finds it, with what is public of it.
"""

import time
from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy.orm import Session

from plait.lora.modules import UNEMBEDDING
from plait.lora.targets import ATTENTION, MLP
from plait.server.database import calls, checkpoints, models
from plait.server.database import tables as t
from plait.server.database.database import Database
from plait.server.errors import NotFound
from plait.server.tinker_path import SEGMENTS
from plait.server.trained_kind import is_lora, rank_of
from plait.server.wire.models.checkpoints import Checkpoint, WeightsInfoResponse
from plait.server.wire.models.runs import TrainingRun


class TrainingRuns:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, tenant_id: str, limit: int, offset: int, project_id: str | None) -> tuple[list[TrainingRun], int]:
        """The tenant's own, newest first, and how many there are in all."""
        return await self._database.run(lambda session: _page(session, tenant_id, limit, offset, project_id))

    async def get(self, run_id: str, tenant_id: str, with_public: bool) -> TrainingRun:
        """The tenant's own; one with a public checkpoint, if `with_public`. Raises NotFound."""
        run = await self._database.run(lambda session: _get(session, run_id, tenant_id, with_public))
        if run is None:
            raise NotFound("training run", run_id)
        return run

    async def checkpoints(self, run_id: str, tenant_id: str) -> list[Checkpoint]:
        """Newest first; of another tenant's run what is public. Raises NotFound."""
        found = await self._database.run(lambda session: _checkpoints(session, run_id, tenant_id))
        if found is None:
            raise NotFound("training run", run_id)
        return [as_checkpoint(row) for row in found]

    async def checkpoint_page(self, tenant_id: str, limit: int, offset: int) -> tuple[list[Checkpoint], int]:
        """Of all the tenant's runs, newest first."""
        rows, total = await self._database.run(
            lambda session: checkpoints.list_checkpoints(session, tenant_id, time.time(), limit, offset)
        )
        return [as_checkpoint(row) for row in rows], total


def as_checkpoint(row: t.Checkpoint) -> Checkpoint:
    return Checkpoint(
        checkpoint_id=f"{SEGMENTS[row.kind]}/{row.name}",
        checkpoint_type=row.kind,
        time=as_time(row.created_s),
        tinker_path=row.tinker_path,
        size_bytes=row.size_bytes,
        public=row.public,
        user_metadata=row.user_metadata,
        expires_at=None if row.expires_s is None else as_time(row.expires_s),
    )


def as_weights_info(row: t.Checkpoint) -> WeightsInfoResponse:
    targets = set(row.lora["target_modules"])
    return WeightsInfoResponse(
        base_model=row.base_model,
        is_lora=is_lora(row.lora),
        lora_rank=rank_of(row.lora),
        train_unembed=UNEMBEDDING in targets,
        train_mlp=bool(targets.intersection(MLP)),
        train_attn=bool(targets.intersection(ATTENTION)),
    )


def as_time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _page(session: Session, tenant_id: str, limit: int, offset: int, project_id: str | None) -> tuple[list[TrainingRun], int]:
    rows, total = models.list_models(session, tenant_id, limit, offset, project_id)
    return _runs(session, rows), total


def _get(session: Session, run_id: str, tenant_id: str, with_public: bool) -> TrainingRun | None:
    row = models.get_model(session, run_id, None)
    if row is not None and row.tenant_id == tenant_id:
        return _runs(session, [row])[0]
    if row is None or not with_public or not (public := _checkpoints(session, run_id, tenant_id)):
        return None
    newest = {checkpoint.kind: checkpoint for checkpoint in reversed(public)}
    return _run(row, row.created_s, newest.get("training"), newest.get("sampler"))


def _checkpoints(session: Session, run_id: str, tenant_id: str) -> list[t.Checkpoint] | None:
    row = models.get_model(session, run_id, None)
    if row is None:
        return None
    found = checkpoints.checkpoints_of_model(session, run_id, None, time.time())
    if row.tenant_id == tenant_id:
        return found
    return [checkpoint for checkpoint in found if checkpoint.public] or None


def _runs(session: Session, rows: Sequence[t.Model]) -> list[TrainingRun]:
    ids, now_s = [row.model_id for row in rows], time.time()
    training = checkpoints.latest_checkpoints(session, ids, "training", now_s)
    sampler = checkpoints.latest_checkpoints(session, ids, "sampler", now_s)
    asked_s = calls.last_call_s(session, ids)
    return [
        _run(row, asked_s.get(row.model_id, row.created_s), training.get(row.model_id), sampler.get(row.model_id)) for row in rows
    ]


def _run(row: t.Model, asked_s: float, training: t.Checkpoint | None, sampler: t.Checkpoint | None) -> TrainingRun:
    return TrainingRun(
        training_run_id=row.model_id,
        base_model=row.base_model,
        model_owner=row.tenant_id,
        corrupted=row.corrupted,
        is_lora=is_lora(row.lora),
        lora_rank=rank_of(row.lora),
        last_request_time=as_time(max(asked_s, row.last_request_s)),
        last_checkpoint=None if training is None else as_checkpoint(training),
        last_sampler_checkpoint=None if sampler is None else as_checkpoint(sampler),
        user_metadata=row.user_metadata,
    )
