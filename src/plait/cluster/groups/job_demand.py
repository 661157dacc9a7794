"""The trace of one job's function calls, and the profiles that it comes to tell. Pure."""

from plait.cluster.groups.own_times import OwnTimes
from plait.placement.demand_trace import DemandTrace, FunctionRecord
from plait.placement.extraction import Extraction, extract

NOTHING_NEW = Extraction(None, "no call since the last look")


class JobDemand:
    """After each profile a trace begins anew, so that the next tells of now."""

    def __init__(self, job: str, times: OwnTimes, started_s: float) -> None:
        self.job, self._times = job, times
        self._trace = DemandTrace()
        self._num_new = 0
        self._seen = started_s, times.delay_s(job)
        self.slowdown = 1.0
        """Time that passed while the latest profile was told, over the job's own."""
        self.latest = Extraction(None, "no call was recorded")

    def record(self, record: FunctionRecord) -> None:
        self._trace.record(record)
        self._num_new += 1

    def look(self, now_s: float) -> Extraction:
        """What has been recorded tells; its `anchor_s` is of the clock, not of the job's own time."""
        if not self._num_new:
            return NOTHING_NEW
        self._num_new = 0
        found = extract(self._trace)
        if found.profile is None:
            if self.latest.profile is None:
                self.latest = found
            return found
        self._begin_anew(now_s)
        delay_s = self._times.delay_s(self.job)
        self.latest = Extraction(found.profile, anchor_s=found.anchor_s + delay_s, spread=found.spread)
        return self.latest

    def _begin_anew(self, now_s: float) -> None:
        (since_s, delay_s), self._seen = self._seen, (now_s, self._times.delay_s(self.job))
        passed_s = now_s - since_s
        self.slowdown = passed_s / max(passed_s - (self._seen[1] - delay_s), 1e-9)
        self._trace = DemandTrace()
