"""The demand that function calls of one job made, in bounded memory.

- Calls of one role that touch become one busy interval, so a rollout of a thousand chunks is one entry.
- A role keeps at most MAX_INTERVALS. When it has more, usual gaps are closed if they are far shorter than the long ones (they lie
  between calls of one phase); otherwise the oldest half is forgotten, for all roles alike.
"""

from collections.abc import Sequence
from itertools import pairwise

import msgspec
import numpy as np

from plait.placement.job import Role
from plait.placement.job_profile import Window
from plait.types.errors import StateError

MAX_INTERVALS = 256
"""Of one role; a hundred periods say as much as a thousand."""
GAP_RATIO = 8.0
"""Gaps at least this many times the usual one are long, and the usual ones then may lie within a phase."""
MIN_LONG = 3
"""They do if so many are long: fewer may be pauses of a job"""
SHORT_GAP = 0.2
"""or if the usual gap is shorter than this share of the usual call."""


class FunctionRecord(msgspec.Struct, frozen=True):
    """One function call that was served. `num_bytes`: memory that the job held on each device."""

    start_s: float
    end_s: float
    function: str
    role: Role
    num_devices: int = 1
    num_bytes: int = 0


class DemandTrace:
    """Calls may come in any order of a few seconds, as they end."""

    def __init__(self, max_intervals: int = MAX_INTERVALS) -> None:
        self._max_intervals = max_intervals
        self._intervals: dict[Role, list[Window]] = {}
        self._peaks: dict[Role, tuple[int, int]] = {}
        self._gap_s: dict[Role, float] = {}
        self._known_from_s = -float("inf")

    def record(self, call: FunctionRecord) -> None:
        if not call.end_s >= call.start_s:
            raise StateError(
                f"{call.function} ended at {call.end_s} s, before its start at {call.start_s} s.", "Record what was measured."
            )
        if call.end_s <= self._known_from_s:
            return
        intervals = self._intervals.setdefault(call.role, [])
        self._insert(intervals, (max(call.start_s, self._known_from_s), call.end_s), self._gap_s.setdefault(call.role, 0.0))
        devices, num_bytes = self._peaks.get(call.role, (0, 0))
        self._peaks[call.role] = (max(devices, call.num_devices), max(num_bytes, call.num_bytes))
        if len(intervals) > self._max_intervals:
            self._shorten(call.role)

    def roles(self) -> list[Role]:
        return sorted(self._intervals)

    def intervals(self, role: Role) -> Sequence[Window]:
        """Busy intervals in absolute seconds: disjoint, in order."""
        return self._intervals.get(role, [])

    def peaks(self, role: Role) -> tuple[int, int]:
        """Most devices, most bytes."""
        return self._peaks.get(role, (0, 0))

    def span(self) -> Window:
        """From where on all roles are known, to the last end."""
        every = [window for intervals in self._intervals.values() for window in intervals]
        if not every:
            return (0.0, 0.0)
        return (max(min(start for start, _ in every), self._known_from_s), max(end for _, end in every))

    @staticmethod
    def _insert(intervals: list[Window], new: Window, gap_s: float) -> None:
        """From the end, where it nearly always belongs: usually one step."""
        index = len(intervals)
        while index and intervals[index - 1][0] > new[1] + gap_s:
            index -= 1
        first = index
        while first and intervals[first - 1][1] >= new[0] - gap_s:
            first -= 1
            new = (min(new[0], intervals[first][0]), max(new[1], intervals[first][1]))
        intervals[first:index] = [new]

    def _shorten(self, role: Role) -> None:
        intervals = self._intervals[role]
        gaps = np.asarray([after[0] - before[1] for before, after in pairwise(intervals)])
        usual, longest = float(np.median(gaps)), float(gaps.max())
        busy = float(np.median([end - start for start, end in intervals]))
        num_long = int((gaps > GAP_RATIO * usual).sum())
        if num_long >= MIN_LONG or (num_long and usual < SHORT_GAP * busy):
            self._gap_s[role] = max(self._gap_s[role], float(np.sqrt(max(usual, longest / GAP_RATIO**3) * longest)) / 2)
            merged: list[Window] = []
            for window in intervals:
                self._insert(merged, window, self._gap_s[role])
            self._intervals[role] = merged
        if len(self._intervals[role]) > self._max_intervals // 2:
            self._forget(self._intervals[role][len(self._intervals[role]) // 2][0])

    def _forget(self, before_s: float) -> None:
        self._known_from_s = before_s
        for role, intervals in self._intervals.items():
            self._intervals[role] = [(max(start, before_s), end) for start, end in intervals if end > before_s]
