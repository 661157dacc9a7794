"""The order of one model's calls. Pure.

- Calls run in the order of their `seq_id` without a gap, in whatever order they arrive: k + 1 never before k.
- Exactly once: a call that comes again is known by its seq_id; another payload under a known seq_id is refused.
- A seq_id may be at most `window` ahead of the first that is missing, so what waits is bounded.
- The digests of the latest `REMEMBERED_CALLS` finished calls are kept. An older one that comes again is refused, never run twice.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from plait.types.errors import PlaitError

SEQ_ID_WINDOW = 1024
"""The SDK sends a call in chunks, concurrently and the first one last; no call has nearly as many."""
REMEMBERED_CALLS = 1024
"""The SDK repeats a call for minutes, and waits for its answer long before it has sent so many more."""


class PayloadConflict(PlaitError):
    """A seq_id was used for two different calls."""


class SeqIdError(PlaitError):
    """A seq_id that cannot be the model's next."""


@dataclass(frozen=True, slots=True)
class Submitted:
    is_new: bool
    """False: the call is known, and whoever sent it again waits for the answer of the first."""


class CallOrder:
    def __init__(self, first_seq_id: int = 1, window: int = SEQ_ID_WINDOW) -> None:
        self.window = window
        self._next = first_seq_id
        self._digests: dict[int, str] = {}
        """Of all calls that have not finished and of the latest that have."""
        self._ready: list[int] = []
        self._running: set[int] = set()
        self._finished: deque[int] = deque()
        """Whose digests are kept, first finished first."""

    @classmethod
    def reopen(
        cls, done: Mapping[int, str], pending: Mapping[int, str], first_seq_id: int = 1, window: int = SEQ_ID_WINDOW
    ) -> "CallOrder":
        """The order after a restart: seq_id -> digest of calls that ended and of calls that did not.

        `done` may lack old calls: what is below its last and not pending counts as done. Pending calls are given again.
        """
        both = done.keys() & pending.keys()
        if both:
            raise ValueError(f"seq_id {min(both)} is both done and pending")
        order = cls(max(done, default=first_seq_id - 1) + 1, window)
        order._finished.extend(sorted(done)[-REMEMBERED_CALLS:])
        order._digests = {seq_id: done[seq_id] for seq_id in order._finished} | dict(pending)
        order._ready = sorted(seq_id for seq_id in pending if seq_id < order._next)
        order._advance()
        return order

    @property
    def next_seq_id(self) -> int:
        """The first that has not arrived; what comes after it waits."""
        return self._next

    @property
    def num_unfinished(self) -> int:
        """Calls that wait or run."""
        return len(self._digests) - len(self._finished)

    def submit(self, seq_id: int, payload_digest: str) -> Submitted:
        """A call has arrived. PayloadConflict or SeqIdError if it is refused; nothing has changed then."""
        known = self._digests.get(seq_id)
        if known is None:
            self._check_new(seq_id)
            self._digests[seq_id] = payload_digest
            self._advance()
        elif known != payload_digest:
            raise PayloadConflict(
                f"seq_id {seq_id} has arrived before with another payload.",
                "A call that is sent again must be the same; give a new call the next seq_id.",
            )
        return Submitted(is_new=known is None)

    def _check_new(self, seq_id: int) -> None:
        if seq_id < self._next:
            raise SeqIdError(
                f"seq_id {seq_id} is over: {self._next} is the next of this model.", "Give each new call the next seq_id."
            )
        if seq_id > self._next + self.window:
            raise SeqIdError(
                f"seq_id {seq_id} is more than {self.window} ahead of seq_id {self._next}, which has not arrived.",
                "Number the calls of a model without a gap.",
            )

    def _advance(self) -> None:
        while self._next in self._digests:
            self._ready.append(self._next)
            self._next += 1

    def ready(self) -> list[int]:
        """The calls that may run now, in order, after all that were given before; each is given once."""
        given, self._ready = self._ready, []
        self._running.update(given)
        return given

    def finish(self, seq_id: int) -> None:
        """A call that was given has ended, well or not. KeyError if it was not given, or has ended before."""
        self._running.remove(seq_id)
        self._finished.append(seq_id)
        if len(self._finished) > REMEMBERED_CALLS:
            del self._digests[self._finished.popleft()]

    def requeue_running(self) -> None:
        """The worker was lost with all calls that ran: `ready` gives them again, before all others."""
        self._ready = sorted(self._running) + self._ready
        self._running.clear()
