"""What one worker group has done so far, folded from its events. No clock inside; bounded memory."""

from plait.observe.engine_counters import grown
from plait.observe.events import GroupSample
from plait.observe.snapshot import GroupSnapshot

UP_S, BUSY_S, CALLS, SWITCHES, MOVES = "up_s", "busy_s", "calls", "switches", "moves"


class GroupSummary:
    """Totals go on where the run was started again."""

    def __init__(self, group: str) -> None:
        self.group = group
        self._latest: GroupSample | None = None
        self._counts: dict[str, float] = {}
        self._totals: dict[str, float] = {}
        self._recent: dict[str, float] = {}
        """What has come between the two latest."""

    def add(self, event: GroupSample) -> None:
        counts = {
            UP_S: event.up_s, BUSY_S: event.busy_s, CALLS: float(event.num_calls), SWITCHES: float(event.num_switches),
            MOVES: float(event.num_moves),
        }  # fmt: skip
        before = {} if event.up_s < self._counts.get(UP_S, 0.0) else self._counts
        self._recent = grown(before, counts, {})
        self._totals = grown(before, counts, self._totals)
        self._counts, self._latest = counts, event

    def snapshot(self) -> GroupSnapshot:
        return GroupSnapshot(
            group=self.group,
            deployments=self._latest.deployments if self._latest else (),
            busy_share=_share(self._totals),
            busy_share_recent=_share(self._recent),
            num_calls=int(self._totals.get(CALLS, 0)),
            num_switches=int(self._totals.get(SWITCHES, 0)),
            num_moves=int(self._totals.get(MOVES, 0)),
        )


def _share(counts: dict[str, float]) -> float | None:
    return min(1.0, counts[BUSY_S] / counts[UP_S]) if counts.get(UP_S) else None
