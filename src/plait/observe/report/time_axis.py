"""The report's time axis: seconds since the start, with the gaps between an interruption and the resume drawn short."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from plait.observe.report.history import Session

MAX_GAP_SHARE = 0.03
"""A gap takes at most this share of the time the run was up."""


class Gap(NamedTuple):
    start_x: float
    end_x: float
    length_s: float


class TimeAxis:
    """Maps times to positions, monotonically. Within a session one second is one unit."""

    def __init__(self, sessions: Sequence[Session]) -> None:
        self.sessions = list(sessions) or [Session(0.0, 0.0)]
        self._starts_s = [session.start_s for session in self.sessions]
        active_s = sum(session.end_s - session.start_s for session in self.sessions)
        self.gaps: list[Gap] = []
        self._start_xs = [0.0]
        for earlier, later in zip(self.sessions, self.sessions[1:], strict=False):
            length_s = max(0.0, later.start_s - earlier.end_s)
            begin_x = self._start_xs[-1] + earlier.end_s - earlier.start_s
            end_x = begin_x + min(length_s, max(MAX_GAP_SHARE * active_s, 0.1))
            self.gaps.append(Gap(begin_x, end_x, length_s))
            self._start_xs.append(end_x)
        self.end_x = self._start_xs[-1] + self.sessions[-1].end_s - self.sessions[-1].start_s

    def position(self, time_s: float) -> float:
        """Times in a gap lie at its start, times before the run at 0, times after it at `end_x`."""
        index = max(0, bisect_right(self._starts_s, time_s) - 1)
        session = self.sessions[index]
        inside_s = min(max(time_s, session.start_s), session.end_s) - session.start_s
        return self._start_xs[index] + inside_s
