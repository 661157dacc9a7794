"""A state manager that moves groups beside its caller, who need not know.

- What moves beside pins what it moves. A caller who finds no room meanwhile waits for the end of that, and tries again.
- What cannot be moved beside stays: whoever needs the move done tries again, and hears why it cannot be.
"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from plait.residency.manager import StateManager
from plait.residency.tier import Tier
from plait.types.errors import CapacityError, StateError

Result = TypeVar("Result")


class MovingMemory(StateManager):
    def __init__(
        self, budgets: Mapping[Tier, int | None], device: torch.device, host_folder: Path | None, disk_folder: Path | None
    ) -> None:
        super().__init__(budgets, device, host_folder, disk_folder, disk_lasts=False)
        self._acquired = Counter[str]()
        """How often each group is in use."""
        self._num_beside = 0
        """Moves that were begun beside and have not ended."""
        num_threads = torch.get_num_threads()
        self._copy_thread = self._background.start(_copy_thread).result()
        torch.set_num_threads(num_threads)  # What was said last holds for threads that are yet to come.

    def beside(self, call: Callable[[], object]) -> "Future[object]":
        """Do it on the thread that copies, after what it has to do already."""
        return self._background.start(call)

    def lift(self, name: str) -> None:
        """Bring what is on disk into the host's memory, if there is room."""
        if name in self and self.tier(name) is Tier.DISK:
            self._move_beside(self._mover.lift, name)

    def copy_out(self, name: str) -> None:
        """Copy what nobody uses below the device, so that it can leave at once when its room is needed."""
        self._move_beside(self._copy_out, name)

    def _move_beside(self, move: Callable[[str], None], name: str) -> None:
        with self._changed:
            self._num_beside += 1
        self._background.submit(self._try, move, name)

    def _copy_out(self, name: str) -> None:
        if not self._mover.is_used(name):
            with self._changed:
                sole = {key: n for key, n in self._ledger.contents(name).items() if self._ledger.place_below(key) is None}
            if sole:
                self._mover.copy_below(name, sole, {})

    def _try(self, move: Callable[[str], None], name: str) -> None:
        """Whoever needs the move done tries again, and hears why it cannot be."""
        try:
            with self._mover.moving(name):
                move(name)
        except CapacityError:
            return
        except StateError:
            if name in self:  # else it was lost before its turn
                raise
        finally:
            with self._changed:
                self._num_beside -= 1

    def _patiently(self, action: Callable[[], Result]) -> Result:
        """What finds no room while moves go on beside, which keep what they move from leaving, is done after them."""
        try:
            return action()
        except CapacityError:
            if not self._num_beside or threading.current_thread() is self._copy_thread:
                raise
        self.flush()
        return action()

    # ---- use

    def acquire(self, name: str, writable: bool = False) -> dict[str, Tensor]:
        tensors = self._patiently(lambda: super(MovingMemory, self).acquire(name, writable))
        with self._changed:
            self._acquired[name] += 1
        return tensors

    def release(self, name: str) -> None:
        super().release(name)
        with self._changed:
            self._acquired[name] -= 1
            if not self._acquired[name]:
                del self._acquired[name]

    def is_acquired(self, name: str) -> bool:
        return self._acquired[name] > 0

    def lose(self, name: str) -> None:
        """Whether it is there or not, in use or not."""
        if name in self:
            while self.is_acquired(name):
                self.release(name)
            self.drop(name)


def _copy_thread() -> threading.Thread:
    """Which it is; it is not to take the cores of the threads that compute."""
    torch.set_num_threads(1)
    return threading.current_thread()
