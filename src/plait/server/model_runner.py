"""Runs the calls of one model, one after another in the order of their seq_ids, and opens it on the trainer when it must.

- A call's result is committed to the database before anybody sees it; the same call is never carried out twice: after a loss the
  model is opened from its latest record, whose seq_id tells whether the call in flight had taken place.
- Gradients that waited are made anew: the forward_backward calls since the latest record run again, in order.
- A failed forward_backward fails the next optim_step, for a step on part of a batch would be a wrong step.
- An optim_step or a load uses up the gradients that wait, also when it fails.
- A model that the trainer does not know any more is opened again: after a loss of the worker, and after a failure of its own.
- The coroutine lives while there is something to run; nothing polls.
"""

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from plait.cluster.model_messages import CloseModel, DiscardGradients, ForwardBackward, ModelOpened, OpenModel
from plait.operations.call_order import CallOrder
from plait.operations.gradient_guard import GradientGuard
from plait.server.call import Call, CallError, CallFailure, CallResult, Kind
from plait.server.database.errors import AlreadyThere, DatabaseError, UnstorableValue
from plait.server.trainer_calls import TrainerCalls, TrainerLost
from plait.types.errors import PlaitError
from plait.types.policy import AdapterRef

MAX_LOSSES = 2
"""A call that the worker does not survive so often is failed, so that it does not end the service."""
JOURNAL_RETRY_S = 1.0

log = logging.getLogger("plait.server")


class Journal(Protocol):
    """The durable side of a model's calls."""

    async def finish(self, call: Call, result: CallResult | CallFailure) -> None: ...

    async def accumulated_after(self, model_id: str, seq_id: int) -> list[tuple[Call, str | None]]:
        """The forward_backward calls whose gradients wait, in order; with its error one that failed, so that they lack its own."""
        ...

    async def last_change(self, model_id: str) -> int:
        """seq_id of the last successful call that made a version; 0: none did."""
        ...

    async def mark_corrupted(self, model_id: str) -> None: ...


class Handler(Protocol):
    """How one call is carried out. Raises CallError, or any other PlaitError if the input is at fault."""

    async def run(self, runner: "ModelRunner", call: Call) -> CallResult: ...

    def has_gradients(self, call: Call) -> bool:
        """It is a forward_backward, and not a forward pass alone."""
        ...

    def lost_result(self, call: Call, version: int) -> CallResult:
        """Of a call that made `version`, and whose answer went with the worker."""
        ...

    def replay_message(self, call: Call) -> ForwardBackward:
        """Of a call that has gradients."""
        ...


@dataclass(slots=True)
class ModelRunner:
    opening: OpenModel
    """How it is opened."""
    base_model: str
    """The name by which the client knows the base."""
    session_id: str
    trainer: TrainerCalls
    journal: Journal
    handler: Handler
    on_ended: Callable[["ModelRunner", Call, CallResult | CallFailure], None]
    before_opening: Callable[["ModelRunner"], Awaitable[None]]
    """Makes room on the trainer."""
    order: CallOrder
    stored_version: int | None = None
    """The latest version that the journal told of when it was taken up."""
    guard: GradientGuard = field(default_factory=GradientGuard)
    ref: AdapterRef | None = None
    """The latest version, known once the model has been opened."""
    is_opening: bool = False
    has_ended: bool = False
    """Its session has finished, or it was unloaded: it takes no more calls."""
    last_used_s: float = 0.0
    _calls: dict[int, Call] = field(default_factory=dict)
    _ready: list[int] = field(default_factory=list)
    _task: asyncio.Task[None] | None = None
    _opened_at: int | None = None
    """The trainer's number of losses then."""

    @property
    def is_open(self) -> bool:
        return self._opened_at == self.trainer.num_losses(self.model_id)

    @property
    def model_id(self) -> str:
        return self.opening.model_id

    @property
    def is_busy(self) -> bool:
        return self._task is not None

    @property
    def num_waiting(self) -> int:
        return len(self._calls)

    def version_at(self, seq_id: int) -> int | None:
        """The version that the call `seq_id` will meet; None while that cannot be told."""
        version = self.ref.policy.version if self.ref else self.stored_version
        return None if version is None else version + sum(call.changes_version and k < seq_id for k, call in self._calls.items())

    def submit(self, call: Call) -> None:
        """A call that is new to `order` and is in the journal."""
        self._calls[call.seq_id] = call
        self._ready += self.order.ready()
        if self._ready and self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"calls of {self.model_id}")

    def close(self) -> None:
        """Off the trainer; the next call opens it again."""
        if self.is_open:
            self._opened_at = None
            self.trainer.tell(CloseModel(self.model_id))

    async def stop(self) -> None:
        """Run nothing more; what is in the journal runs after a restart."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while self._ready and self._ready[0] in self._calls:
                call = self._calls[self._ready[0]]
                result = await self._store(call, await self._carry_out(call))
                del self._calls[self._ready.pop(0)]
                self.order.finish(call.seq_id)
                self.on_ended(self, call, result)
                self._ready += self.order.ready()
        finally:
            self._task = None

    async def _store(self, call: Call, result: CallResult | CallFailure) -> CallResult | CallFailure:
        """What was stored. However long the database is away: a result that is not stored is not told."""
        while True:
            try:
                await self.journal.finish(call, result)
                return result
            except (AlreadyThere, UnstorableValue) as error:  # It will be no better next time.
                result = CallFailure(str(error).replace("\0", ""), is_user_error=True)
            except DatabaseError as error:
                log.error("cannot store the result of %s: %s", call.request_id, error)
                await asyncio.sleep(JOURNAL_RETRY_S)

    async def _carry_out(self, call: Call) -> CallResult | CallFailure:
        try:
            return self._note(call, await self._try(call))
        except Exception as error:  # Whatever it is, the calls behind this one must not wait for ever.
            log.exception("call %s failed", call.request_id)
            return CallFailure("".join(traceback.format_exception_only(error)).strip(), is_user_error=False)

    def _note(self, call: Call, result: CallResult | CallFailure) -> CallResult | CallFailure:
        """Keep account of the gradients that wait."""
        if call.changes_version:
            self.guard.clear()
            if isinstance(result, CallFailure) and self.is_open:
                self.trainer.tell(DiscardGradients(self.model_id))
        elif isinstance(result, CallFailure) and self.handler.has_gradients(call):
            self.guard.forward_backward_failed(call.seq_id, result.error)
            return replace(result, lacks_gradients=True)
        return result

    async def _try(self, call: Call) -> CallResult | CallFailure:
        for _ in range(MAX_LOSSES):
            try:
                done = await self._open_for(call)
                return done if done is not None else await self._attempt(call)
            except TrainerLost:
                await self.trainer.wait_until_back()
            except CallError as error:
                if not error.is_user_error:
                    self.close()  # Whatever is wrong with it on the device, its record is right.
                return CallFailure(str(error), error.is_user_error)
            except PlaitError as error:
                return CallFailure(str(error), not isinstance(error, DatabaseError))
        return await self._took_place(call) or CallFailure(
            f"the training worker was lost {MAX_LOSSES} times while it ran this call", is_user_error=False
        )

    async def _took_place(self, call: Call) -> CallResult | None:
        """The result, if a call that lost the worker is in the record all the same."""
        try:
            return await self._open_for(call) if call.changes_version else None
        except (TrainerLost, PlaitError):
            return None

    async def _attempt(self, call: Call) -> CallResult:
        if call.kind == Kind.OPTIM_STEP:
            self.guard.check_optim_step(call.seq_id)
        return await self.handler.run(self, call)

    async def _open_for(self, call: Call) -> CallResult | None:
        """Have the model on the trainer; the result of `call` if it turns out to have taken place before a loss."""
        if self.is_open:
            return None
        opened = await self._open()
        if not call.changes_version or call.seq_id == 0 or opened.seq_id != call.seq_id:
            return None
        return self.handler.lost_result(call, opened.ref.policy.version)

    async def _open(self) -> ModelOpened:
        self.is_opening = True
        try:
            await self.before_opening(self)
            num_losses = self.trainer.num_losses(self.model_id)
            opened = await self.trainer.open(self.opening)
            await self._check_record(opened)
            await self._replay(opened)
        finally:
            self.is_opening = False
        self.ref, self._opened_at = opened.ref, num_losses
        return opened

    async def _check_record(self, opened: ModelOpened) -> None:
        """A model must not fall back to older weights unnoticed."""
        last_change = await self.journal.last_change(self.model_id)
        if opened.seq_id < last_change:
            self.trainer.tell(CloseModel(self.model_id))
            await self.journal.mark_corrupted(self.model_id)
            damage = "; ".join(opened.damage) or "its records are missing"
            raise CallError(
                f"model {self.model_id} had got as far as seq_id {last_change}, and its record is of seq_id {opened.seq_id}: "
                f"{damage}. Load a checkpoint into a new model.",
                is_user_error=False,
            )

    async def _replay(self, opened: ModelOpened) -> None:
        self.guard.clear()
        for call, error in await self.journal.accumulated_after(self.model_id, opened.seq_id):
            if error is None:
                await self.trainer.call(self.handler.replay_message(call))
            else:
                self.guard.forward_backward_failed(call.seq_id, error)
