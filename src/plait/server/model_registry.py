"""The models that clients train: making them, finding them, taking their calls in, and keeping few enough on the trainer.

- A model is known by its id to its own tenant only.
- A call is stored before it is acknowledged. The same call again gives the same request; another payload is refused.
- After a restart a model's unfinished calls run on, and one that is asked for is opened from its latest record.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from sqlalchemy.orm import Session

from plait.cluster.model_messages import OpenModel
from plait.operations.call_order import CallOrder
from plait.operations.future_state import FailureCategory
from plait.operations.provenance import Mode
from plait.server.call import Call, CallFailure, CallResult, Kind
from plait.server.certificates import Certifier
from plait.server.database import calls, models
from plait.server.database import tables as t
from plait.server.database.database import Database
from plait.server.errors import Gone, NotFound
from plait.server.folders import DataFolders
from plait.server.futures import Futures
from plait.server.journal import CallJournal, add_row, as_call
from plait.server.model_runner import Handler, ModelRunner
from plait.server.trained_kind import training_of
from plait.server.trainer_calls import TrainerCalls
from plait.types.lora import LoraConfig
from plait.types.policy import Training

OnEnded = Callable[[ModelRunner, Call, CallResult | CallFailure], None]


class TrainedOn(Protocol):
    """What a base model has for the models that are trained on it."""

    @property
    def trainer(self) -> TrainerCalls: ...

    @property
    def handler(self) -> Handler: ...


class ModelRegistry:
    """`on_ended` hears of every call that ended, after it is stored."""

    def __init__(
        self,
        database: Database,
        base_of: Callable[[str], TrainedOn],
        futures: Futures,
        folders: DataFolders,
        certifier: Certifier,
        max_resident: Mapping[Training, int],
        on_ended: OnEnded,
    ) -> None:
        """`base_of` gives the base model that has a name; `max_resident` holds for each."""
        self._database, self._base_of, self._futures = database, base_of, futures
        self._folders, self._certifier, self._max_resident, self._on_ended = folders, certifier, max_resident, on_ended
        self.journal = CallJournal(database)
        self._runners: dict[str, ModelRunner] = {}
        self._loading: dict[str, asyncio.Task[ModelRunner]] = {}
        self._storing: dict[str, asyncio.Task[None]] = {}
        """Calls that are not in the journal yet; also those that could not be put there, until they come again."""
        self._leaving: set[str] = set()
        """Models that leave the trainer when they have done what they were asked."""

    # ---- making and finding

    async def create(self, model: t.Model, call: Call) -> str:
        """A new model with its first call (seq_id 0); the request that tells when it is there. Again: the same request."""
        digest = payload_digest(call)
        known = await self._database.run(lambda session: models.get_model(session, model.model_id, model.tenant_id))
        if known is None:
            await self._database.run(lambda session: _add_model(session, model, call, digest))
            runner = self._adopt(model, CallOrder(first_seq_id=0))
            runner.order.submit(0, digest)
            self._futures.add(call.request_id, model.tenant_id)
            runner.submit(call)
            return call.request_id
        return await self.submit(known.tenant_id, call)

    async def exists(self, model_id: str, tenant_id: str) -> bool:
        return await self._database.run(lambda session: models.get_model(session, model_id, tenant_id)) is not None

    async def runner(self, model_id: str, tenant_id: str) -> ModelRunner:
        """Raises NotFound, or Gone to its own tenant."""
        runner = self._runners.get(model_id)
        if runner is None:
            if model_id not in self._loading:
                self._loading[model_id] = asyncio.create_task(self._load(model_id))
            try:
                runner = await asyncio.shield(self._loading[model_id])
            except Gone:
                await self.row(model_id, tenant_id)  # For a stranger it was never there.
                raise
            finally:
                self._loading.pop(model_id, None)
        if runner.opening.tenant != tenant_id:
            raise NotFound("model", model_id)
        return runner

    async def row(self, model_id: str, tenant_id: str | None) -> t.Model:
        """Of any tenant if none is named. Raises NotFound."""
        row = await self._database.run(lambda session: models.get_model(session, model_id, tenant_id))
        if row is None:
            raise NotFound("model", model_id)
        return row

    async def _load(self, model_id: str) -> ModelRunner:
        """Whoever asks: who may have it is asked afterwards."""
        row = await self.row(model_id, None)
        if row.state != "live":
            raise Gone(f"the session of model {model_id!r} has ended.", "Load its checkpoint into a new session.")
        keys = await self._database.run(lambda session: calls.call_keys(session, model_id))
        done = {key.seq_id: key.payload_digest for key in keys if key.state != "pending"}
        pending = {key.seq_id: key.payload_digest for key in keys if key.state == "pending"}
        version = await self._database.run(lambda session: calls.last_version(session, model_id))
        runner = self._adopt(row, CallOrder.reopen(done, pending, first_seq_id=0), version)
        for waiting in await self._database.run(lambda session: calls.pending_calls(session, model_id)):
            call = as_call(waiting)
            self._futures.add(call.request_id, row.tenant_id)
            runner.submit(call)
        return runner

    def _adopt(self, row: t.Model, order: CallOrder, version: int | None = None) -> ModelRunner:
        lora = LoraConfig(row.lora["rank"], row.lora["alpha"], tuple(row.lora["target_modules"]), row.lora["seed"])
        folder = str(self._folders.steps(row.tenant_id, row.model_id))
        if (row.user_metadata or {}).get("policy") == Mode.STRICT:
            self._certifier.set_strict(row.model_id)
        base = self._base_of(row.base_model)
        runner = self._runners[row.model_id] = ModelRunner(
            OpenModel(row.model_id, row.tenant_id, lora, folder, row.source_folder, row.with_optimizer, training_of(row.lora)),
            row.base_model, row.session_id, base.trainer, self.journal, base.handler, self._ended, self._make_room, order, version,
        )  # fmt: skip
        return runner

    async def resume(self) -> int:
        """After a restart: go on with what is unfinished, and fail what never can. How many calls there are."""
        waiting = await self._database.run(lambda session: calls.pending_calls(session))
        rows = {row.model_id: row for row in await self._database.run(models.live_models)}
        for model_id in dict.fromkeys(call.model_id for call in waiting):
            if model_id in rows:
                await self.runner(model_id, rows[model_id].tenant_id)
        for call in waiting:
            if call.model_id not in rows:
                await self.journal.finish(as_call(call), CallFailure("the model's session ended before this call ran", True))
        return len(waiting)

    # ---- calls

    async def submit(self, tenant_id: str, call: Call) -> str:
        """Take a call in. Raises NotFound, PayloadConflict or SeqIdError."""
        runner = await self.runner(call.model_id, tenant_id)
        if runner.has_ended:
            raise Gone(f"model {call.model_id!r} has ended.", "Load its checkpoint into a new session.")
        digest = payload_digest(call)
        runner.last_used_s = time.monotonic()
        is_new = runner.order.submit(call.seq_id, digest).is_new
        storing = self._storing.get(call.request_id)
        if is_new:
            self._futures.add(call.request_id, tenant_id)
        if is_new or (storing is not None and storing.done()):  # Done and still here: it could not be stored.
            storing = self._storing[call.request_id] = asyncio.create_task(self._store(runner, call, digest), name=call.model_id)
        if storing is not None:
            await asyncio.shield(storing)  # Also of a repeated call: what is acknowledged is stored.
        return call.request_id

    async def _store(self, runner: ModelRunner, call: Call, digest: str) -> None:
        await self.journal.add(call, digest)
        del self._storing[call.request_id]
        runner.submit(call)

    def _ended(self, runner: ModelRunner, call: Call, result: CallResult | CallFailure) -> None:
        if isinstance(result, CallResult):
            self._futures.finish(call.request_id, result.body, result.content_type)
        else:
            category = FailureCategory.USER if result.is_user_error else FailureCategory.SERVER
            self._futures.fail(call.request_id, result.error, category)
        self._on_ended(runner, call, result)
        asyncio.get_running_loop().call_soon(self._leave_if_idle, runner)

    # ---- residency

    async def _make_room(self, runner: ModelRunner) -> None:
        """Close the models of the same base and kind that were idle longest, until one more fits."""
        others = [
            other for other in self._runners.values()
            if other is not runner and other.trainer is runner.trainer and other.opening.training == runner.opening.training
        ]  # fmt: skip
        resident = [other for other in others if other.is_open or other.is_opening]
        idle = sorted((other for other in resident if not other.is_busy), key=lambda other: other.last_used_s)
        for other in idle[: max(0, len(resident) + 1 - self._max_resident[runner.opening.training])]:
            other.close()

    def put_away(self, session_ids: Sequence[str], have_ended: bool = False) -> None:
        """Sessions that ended or were lost: their models leave the trainer; what they were asked before runs on."""
        for runner in [runner for runner in self._runners.values() if runner.session_id in session_ids]:
            self._put_away(runner, have_ended)

    def _put_away(self, runner: ModelRunner, has_ended: bool) -> None:
        runner.has_ended = runner.has_ended or has_ended
        self._leaving.add(runner.model_id)
        self._leave_if_idle(runner)

    def _leave_if_idle(self, runner: ModelRunner) -> None:
        is_storing = any(task.get_name() == runner.model_id and not task.done() for task in self._storing.values())
        if runner.model_id in self._leaving and not runner.is_busy and not is_storing:
            self._leaving.remove(runner.model_id)
            runner.close()
            self._runners.pop(runner.model_id, None)

    def unload(self, model_id: str) -> None:
        """One model alone."""
        if (runner := self._runners.get(model_id)) is not None:
            self._put_away(runner, has_ended=True)

    async def close(self) -> None:
        await asyncio.gather(*self._storing.values(), return_exceptions=True)
        for runner in self._runners.values():
            await runner.stop()

    def num_resident(self, trainer: TrainerCalls) -> int:
        """Models of one base that are open."""
        return sum(runner.is_open for runner in self._runners.values() if runner.trainer is trainer)

    @property
    def num_waiting(self) -> int:
        return sum(runner.num_waiting for runner in self._runners.values())


def payload_digest(call: Call) -> str:
    """What a repeated call must have in common with the first.

    The SDK numbers the sampler of an unnamed save anew when it repeats the call; the first one's sampler stands.
    """
    payload = call.payload
    if call.kind == Kind.SAVE_FOR_SAMPLER:
        payload = json.dumps(json.loads(payload) | {"sampling_session_seq_id": None}, sort_keys=True).encode()
    return hashlib.sha256(f"{call.kind}\0".encode() + payload).hexdigest()


def _add_model(session: Session, model: t.Model, call: Call, digest: str) -> None:
    models.add_model(session, model)
    add_row(session, call, digest)
