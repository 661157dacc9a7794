"""Which of the waiting runs start now. Pure.

At most `MAX_RUNNING` run at one time, as each has environment processes of its own. The next is of the tenant that has the fewest
running; of one tenant's the oldest.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

MAX_RUNNING = 8


def next_runs(waiting: Sequence[tuple[str, str]], running: Iterable[str], max_running: int = MAX_RUNNING) -> list[str]:
    """`waiting`: (run, tenant), the oldest first. `running`: the tenant of each run that is under way."""
    left, counts, started = list(waiting), Counter(running), list[str]()
    while left and counts.total() < max_running:
        chosen = min(left, key=lambda run: counts[run[1]])
        left.remove(chosen)
        counts[chosen[1]] += 1
        started.append(chosen[0])
    return started
