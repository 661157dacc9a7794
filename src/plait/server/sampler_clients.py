"""Numbers for the clients that share a sampler: they keep the numbers of their requests apart."""

import secrets
from collections import OrderedDict

MAX_NUMBER = 1_000_000_000
MAX_REMEMBERED = 10_000


class SamplerClients:
    """`started_s`: since when this server runs, in seconds since the epoch."""

    def __init__(self, started_s: float) -> None:
        self._started_s = started_s
        self._next: OrderedDict[str, int] = OrderedDict()

    def join(self, sampler_id: str, created_s: float) -> int:
        """A number that no other client of the sampler has; the first one's is 0.

        Who joined before a restart is not known: later numbers are drawn at random then, as the SDK itself does for its copies.
        """
        number = self._next.get(sampler_id)
        if number is None:
            number = 0 if created_s >= self._started_s else 1 + secrets.randbelow(MAX_NUMBER)
        self._next[sampler_id] = number + 1
        self._next.move_to_end(sampler_id)
        if len(self._next) > MAX_REMEMBERED:
            self._next.popitem(last=False)
        return number
