"""What siblings on different engines draw, passed on between the engines' drafters. Torch-free.

A group counts from its first generation to its last; then every engine may forget it. It may begin again later.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from plait.cluster.messages import ShareTokens
from plait.drafting.draft import DraftIncrement
from plait.drafting.hub import DraftHub

SendTo = Callable[[str, ShareTokens], None]


class SiblingTokens:
    def __init__(self, engines: Sequence[str], send_to: SendTo) -> None:
        self._engines, self._send_to = engines, send_to
        self._hub = DraftHub()
        self._num_members: Counter[str] = Counter()

    def began(self, group: str) -> None:
        """A generation of the group is to come."""
        if group:
            if group not in self._num_members:
                self._hub.begin_group(group)
            self._num_members[group] += 1

    def ended(self, group: str) -> None:
        """One that had begun is over."""
        if not group:
            return
        self._num_members[group] -= 1
        if not self._num_members[group]:
            del self._num_members[group]
            self._hub.end_group(group)
            for engine in self._engines:
                self._send_to(engine, ShareTokens((), (group,)))

    def drawn(self, engine: str, increments: Iterable[DraftIncrement]) -> None:
        for one in increments:
            self._hub.update(engine, one.group, one.request, one.start, one.tokens)
        for other in self._engines:
            if found := self._hub.fetch(other):
                self._send_to(other, ShareTokens(tuple(found)))

    def lost(self, engine: str) -> None:
        self._hub.lose_engine(engine)
