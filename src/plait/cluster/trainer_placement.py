"""At which of several trainers an adapter's next work runs. Pure.

- An adapter is at one trainer at a time, its home. It stays there unless another trainer has so much less to do that opening the
  adapter anew (its record is read) pays; only what has no work under way may move.
- An adapter without a home goes to the trainer with the least to do, of equal ones to that with the fewest adapters.
- What a trainer has to do is counted in tokens of the work that was begun and has not ended.
"""

from collections.abc import Hashable

MOVE_TOKENS = 128
"""What opening an adapter costs, as tokens to train: reading and checking its record takes about as long."""


class TrainerPlacement:
    """All methods take O(number of trainers), except `remove_trainer`, which also visits the adapters that were there."""

    def __init__(self) -> None:
        self._adapters: dict[str, dict[str, None]] = {}
        """By trainer, in the order in which they came."""
        self._loads: dict[str, int] = {}
        self._homes: dict[str, str] = {}
        self._work: dict[str, dict[Hashable, int]] = {}
        """Sizes of each adapter's work under way."""

    def add_trainer(self, trainer: str) -> None:
        self._adapters.setdefault(trainer, {})
        self._loads.setdefault(trainer, 0)

    def remove_trainer(self, trainer: str) -> tuple[str, ...]:
        """The adapters that were there: they have no home, and no work under way."""
        lost = tuple(self._adapters.get(trainer, ()))
        for adapter in lost:
            self.leave(adapter)
        self._adapters.pop(trainer, None)
        self._loads.pop(trainer, None)
        return lost

    @property
    def trainers(self) -> tuple[str, ...]:
        return tuple(self._loads)

    @property
    def has_work(self) -> bool:
        return bool(self._work)

    def load_tokens(self, trainer: str) -> int:
        return self._loads[trainer]

    def home(self, adapter: str) -> str | None:
        return self._homes.get(adapter)

    def choose(self, adapter: str, may_move: bool = True) -> str:
        """The trainer for its next work. There must be one."""
        least = min(self._loads, key=lambda trainer: (self._loads[trainer], len(self._adapters[trainer])))
        home = self._homes.get(adapter)
        if home is None:
            return least
        is_worth_it = self._loads[home] - self._loads[least] > MOVE_TOKENS
        return least if may_move and adapter not in self._work and is_worth_it else home

    def settle(self, adapter: str, trainer: str) -> None:
        """It is at `trainer` from now on. What it has under way elsewhere ends."""
        self.leave(adapter)
        self._homes[adapter] = trainer
        self._adapters[trainer][adapter] = None

    def leave(self, adapter: str) -> None:
        """It is nowhere; its work under way has ended. One without a home is fine."""
        self.end_all(adapter)
        home = self._homes.pop(adapter, None)
        if home is not None:
            del self._adapters[home][adapter]

    def begin(self, adapter: str, call: Hashable, size_tokens: int) -> None:
        """Work of an adapter that has a home; `call` names it among the adapter's own."""
        self.end(adapter, call)
        self._work.setdefault(adapter, {})[call] = size_tokens
        self._loads[self._homes[adapter]] += size_tokens

    def end(self, adapter: str, call: Hashable) -> None:
        """Work that is not under way is fine."""
        work = self._work.get(adapter, {})
        if call in work:
            self._loads[self._homes[adapter]] -= work.pop(call)
            if not work:
                del self._work[adapter]

    def end_all(self, adapter: str) -> None:
        for call in tuple(self._work.get(adapter, ())):
            self.end(adapter, call)
