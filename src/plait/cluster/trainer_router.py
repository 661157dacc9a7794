"""Messages to the trainers of a deployment: each goes to where its adapter is, or is to be. Torch-free, synchronous.

- Adapters are tasks and models, by the names that all their messages have. Where the next work of one runs is decided by
  `TrainerPlacement`. One that moves is closed at the old trainer first, and opened from its record at the new one only when the old
  one has let go of it; whoever sends work need not know. An adapter with gradients that wait on the device does not move.
- When a trainer is lost, `on_lost` hears of the adapters that it had. `on_reopen` says that they may be opened again: at once where
  there is another trainer, else when a trainer is back. Work for an adapter that is lost is dropped: whoever sent it sends it again
  once it is open.
- What is opened while there is no trainer is opened when one is back.
"""

from collections.abc import Callable, Sequence

import msgspec

from plait.cluster.messages import (
    AdapterClosed,
    CloseTask,
    FromWorker,
    JobFailed,
    OpenTask,
    SetTenantWeight,
    TaskOpened,
    ToWorker,
    UpdateDone,
)
from plait.cluster.model_messages import OPENING, CallDone, CallFailed, CloseModel, DiscardGradients, ModelOpened, OpenModel
from plait.cluster.routed_adapter import RoutedAdapter
from plait.cluster.trainer_messages import (
    UPDATE,
    Opening,
    ToTrainer,
    Work,
    call_of,
    closing,
    has_gradients_after,
    owner_of,
    size_of,
)
from plait.cluster.trainer_placement import TrainerPlacement


class TrainerRouter:
    """`on_idle` is told when the trainers come to have work, and when none has any more."""

    def __init__(
        self,
        trainers: Sequence[str],
        send_to: Callable[[str, ToWorker], None],
        on_lost: Callable[[Sequence[str]], None],
        on_reopen: Callable[[Sequence[str]], None],
        on_idle: Callable[[bool], None],
    ) -> None:
        self._send_to, self._on_lost, self._on_reopen, self._on_idle = send_to, on_lost, on_reopen, on_idle
        self.placement = TrainerPlacement()
        for trainer in trainers:
            self.placement.add_trainer(trainer)
        self._adapters: dict[str, RoutedAdapter] = {}
        self._closing: dict[str, tuple[str, int]] = {}
        """Where an adapter was closed, and how many answers to that have not come."""
        self._unopened: dict[str, Opening] = {}
        self._lost: list[str] = []
        """To be opened again when a trainer is back."""
        self._is_idle = True

    # ---- what goes out

    def send(self, message: ToTrainer) -> None:
        match message:
            case SetTenantWeight():
                for trainer in self.placement.trainers:
                    self._send_to(trainer, message)
            case OpenTask() | OpenModel():
                self._open(owner_of(message), message)
            case CloseTask() | CloseModel():
                self._close(owner_of(message), message)
            case DiscardGradients():
                self._discard(message)
            case _:
                self._work(owner_of(message), message)
        self._tell_idle()

    def _open(self, owner: str, message: Opening) -> None:
        if not self.placement.trainers:
            self._unopened[owner] = message
            return
        old = self._adapters.pop(owner, None)
        trainer = self._where_to_open(owner, old)
        self._adapters[owner] = RoutedAdapter(message)
        self.placement.settle(owner, trainer)
        self.placement.begin(owner, OPENING, 0)
        self._send_to(trainer, message)

    def _where_to_open(self, owner: str, old: RoutedAdapter | None) -> str:
        """Where it is or was until now: there what was sent before runs before. Else wherever there is least to do."""
        if owner in self._closing:
            return self._closing[owner][0]
        home = self.placement.home(owner)
        return home if old is not None and home is not None else self.placement.choose(owner)

    def _close(self, owner: str, message: CloseTask | CloseModel) -> None:
        self._unopened.pop(owner, None)
        adapter, home = self._adapters.pop(owner, None), self.placement.home(owner)
        self.placement.leave(owner)
        if adapter is not None and home is not None and not adapter.leaves:
            self._send_close(owner, home, message)

    def _send_close(self, owner: str, trainer: str, message: CloseTask | CloseModel) -> None:
        self._closing[owner] = trainer, self._closing.get(owner, (trainer, 0))[1] + 1
        self._send_to(trainer, message)

    def _discard(self, message: DiscardGradients) -> None:
        adapter = self._adapters.get(message.model_id)
        if adapter is not None:
            adapter.has_gradients = False
            self._pass_on(message.model_id, adapter, message)

    def _work(self, owner: str, message: Work) -> None:
        adapter = self._adapters.get(owner)
        if adapter is None:
            if self.placement.trainers:  # It answers that this is not open.
                self._send_to(self.placement.choose(owner), message)
            return
        size_tokens = size_of(message)
        if size_tokens and not adapter.has_gradients and not adapter.leaves:
            self._move_if_better(owner, adapter)
        self.placement.begin(owner, call_of(message), size_tokens)
        adapter.has_gradients = has_gradients_after(message, adapter.has_gradients)
        self._pass_on(owner, adapter, message)

    def _move_if_better(self, owner: str, adapter: RoutedAdapter) -> None:
        home, target = self.placement.home(owner), self.placement.choose(owner)
        if home is not None and target != home:
            adapter.leaves = home
            self.placement.settle(owner, target)
            self._send_close(owner, home, closing(adapter.opening))

    def _pass_on(self, owner: str, adapter: RoutedAdapter, message: Work | DiscardGradients) -> None:
        if adapter.leaves:
            adapter.held.append(message)
        elif (home := self.placement.home(owner)) is not None:
            self._send_to(home, message)

    def _arrive(self, owner: str, adapter: RoutedAdapter) -> None:
        """The old trainer has let go."""
        home = self.placement.home(owner)
        assert home is not None, "one that moves has a home"
        adapter.leaves, held, adapter.held = "", adapter.held, []
        adapter.num_own_opens += 1
        for message in (adapter.opening, *held):
            self._send_to(home, message)

    # ---- what comes back

    def heard(self, worker: str, message: FromWorker) -> FromWorker | None:
        """What a worker says, for whoever else is told; None if it concerns only what is done here."""
        told: FromWorker | None = message
        match message:
            case AdapterClosed(owner):
                self._closed(owner, worker)
                told = None
            case TaskOpened(task=owner) | ModelOpened(model_id=owner):
                told = self._opened(owner, message)
            case UpdateDone(task=owner):
                self.placement.end(owner, UPDATE)
            case JobFailed(task=owner):
                self.placement.end_all(owner)
            case CallDone(model_id=owner, seq_id=seq_id):
                self.placement.end(owner, seq_id)
            case CallFailed(model_id=owner):
                told = self._failed(owner, message)
        self._tell_idle()
        return told

    def _closed(self, owner: str, worker: str) -> None:
        trainer, num_left = self._closing.get(owner, ("", 0))
        if trainer != worker:
            return
        self._closing[owner] = trainer, num_left - 1
        if num_left == 1:
            del self._closing[owner]
            adapter = self._adapters.get(owner)
            if adapter is not None and adapter.leaves == worker:
                self._arrive(owner, adapter)

    def _opened(self, owner: str, message: TaskOpened | ModelOpened) -> FromWorker | None:
        self.placement.end(owner, OPENING)
        if (adapter := self._adapters.get(owner)) is None or not adapter.num_own_opens:
            return message
        adapter.num_own_opens -= 1
        return None

    def _failed(self, owner: str, message: CallFailed) -> FromWorker | None:
        """Where an adapter could not be opened at its new home, the call that it was moved for fails with the reason."""
        self.placement.end(owner, message.seq_id)
        adapter = self._adapters.get(owner)
        if adapter is None:
            return message
        if message.seq_id == OPENING and adapter.num_own_opens:
            adapter.num_own_opens, adapter.open_error = adapter.num_own_opens - 1, message.error
            return None
        error, adapter.open_error = adapter.open_error, ""
        return msgspec.structs.replace(message, error=error) if error else message

    # ---- trainers that go and come

    def down(self, trainer: str) -> None:
        owners = self.placement.remove_trainer(trainer)
        for owner in owners:
            self._adapters.pop(owner, None)
        self._closing = {owner: closed for owner, closed in self._closing.items() if closed[0] != trainer}
        for owner, adapter in list(self._adapters.items()):
            if adapter.leaves == trainer:  # Its record was complete, or it would not have left.
                self._arrive(owner, adapter)
        self._on_lost(owners)
        self._tell_idle()
        if self.placement.trainers:
            self._on_reopen(owners)
        else:
            self._lost += owners

    def relocated(self, trainer: str) -> Sequence[str]:
        """It is in another process now, idle: adapters are opened there. Those whose gradients wait are lost; returns these."""
        lost = [owner for owner, one in self._adapters.items() if one.has_gradients and self.placement.home(owner) == trainer]
        for owner in lost:
            del self._adapters[owner]
            self.placement.leave(owner)
        self._closing = {owner: closed for owner, closed in self._closing.items() if closed[0] != trainer}
        for adapter in (one for owner, one in self._adapters.items() if self.placement.home(owner) == trainer):
            adapter.num_own_opens += 1
            self._send_to(trainer, adapter.opening)
        if lost:
            self._on_lost(lost)
            self._on_reopen(lost)
        return lost

    def up(self, trainer: str) -> None:
        self.placement.add_trainer(trainer)
        unopened, self._unopened = self._unopened, {}
        lost, self._lost = self._lost, []
        for owner, message in unopened.items():
            self._open(owner, message)
        self._on_reopen([owner for owner in lost if owner not in unopened])
        self._tell_idle()

    def _tell_idle(self) -> None:
        is_idle = not self.placement.has_work
        if is_idle != self._is_idle:
            self._is_idle = is_idle
            self._on_idle(is_idle)
