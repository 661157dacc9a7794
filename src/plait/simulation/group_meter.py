"""What groups do with their devices' time, summed up in bounded memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from plait.placement.job import Role
from plait.scheduling.function_call import FunctionCall
from plait.simulation.call_stretch import CallStretch
from plait.simulation.distribution import Distribution
from plait.simulation.timeline import Timeline

ROLLOUT = Role.ROLLOUT
"""Members of an enumeration are looked up slowly, and this one with every call."""
ACTIVITIES = ("held", "busy", "setup")


@dataclass(slots=True)
class ClusterMeter:
    """Of all groups together. Times of devices: seconds times devices."""

    rollout_device_s: float = 0.0
    """Of calls that roll out,"""
    train_device_s: float = 0.0
    """and of those that train."""
    setup_device_s: float = 0.0
    lost_device_s: float = 0.0
    """Of calls that were withdrawn while they ran."""
    held_device_s: float = 0.0
    """Of groups, whether they work or not."""
    held_rollout_device_s: float = 0.0
    """Of groups that have ever rolled out."""
    filled_device_s: float = 0.0
    """Of rollout calls, times how full their batches were."""
    num_calls: int = 0
    num_switches: int = 0
    call_waits: Distribution = field(default_factory=Distribution)
    timelines: dict[tuple[str, str], Timeline] = field(default_factory=dict)
    """(Row, activity) -> seconds times devices."""

    @property
    def service_device_s(self) -> dict[Role, float]:
        return {Role.ROLLOUT: self.rollout_device_s, Role.TRAIN: self.train_device_s}

    def timeline(self, row: str, activity: str) -> Timeline:
        key = (row, activity)
        if key not in self.timelines:
            self.timelines[key] = Timeline()
        return self.timelines[key]


class GroupMeter:
    """Of one group. `rows`: its devices by row of the timelines. Those hear of it once in a while, so a call is cheap: every
    `FLUSH_S`, or once a bin where bins are wider."""

    FLUSH_S = 600.0

    def __init__(self, cluster: ClusterMeter, rows: Mapping[str, int], now_s: float) -> None:
        self._cluster, self._rows = cluster, dict(rows)
        self.num_devices = sum(rows.values())
        self._since_s = now_s
        self._busy_s = self._setup_s = 0.0
        self._open_s = now_s
        self._next_flush_s = now_s + self.FLUSH_S
        self._has_rolled_out = False
        self._last = ""

    def started(self, call: FunctionCall, num_calls: int, waited_s: float) -> None:
        """All but the first of several calls need not wait."""
        cluster = self._cluster
        cluster.num_calls += num_calls
        if waited_s > 0.0:
            cluster.call_waits.add(waited_s)
            num_calls -= 1
        if num_calls:
            cluster.call_waits.add_zeros(num_calls)
        if call.deployment != self._last:
            cluster.num_switches += self._last != ""
            self._last = call.deployment

    def uncount(self, num_calls: int) -> None:
        """They are started anew, one by one."""
        self._cluster.num_calls -= num_calls
        self._cluster.call_waits.add_zeros(-num_calls)

    def ran(
        self, work: CallStretch, num_ended: int, setup_s: float, now_s: float, part_s: float = 0.0, is_kept: bool = False
    ) -> None:
        """Until now; `part_s`: of a call that did not end, lost or kept."""
        cluster, num_devices = self._cluster, self.num_devices
        service_s = num_ended * work.call_s + (part_s if is_kept else 0.0)
        lost_s = 0.0 if is_kept else part_s
        if work.role is ROLLOUT:
            cluster.rollout_device_s += service_s * num_devices
            cluster.filled_device_s += work.fill * service_s * num_devices
            self._has_rolled_out = True
        else:
            cluster.train_device_s += service_s * num_devices
        cluster.lost_device_s += lost_s * num_devices
        cluster.setup_device_s += setup_s * num_devices
        self._busy_s += service_s + lost_s
        self._setup_s += setup_s
        if now_s >= self._next_flush_s:
            self._flush(now_s)

    def close(self, now_s: float) -> None:
        self._flush(now_s)
        held = (now_s - self._open_s) * self.num_devices
        self._cluster.held_device_s += held
        self._cluster.held_rollout_device_s += held * self._has_rolled_out

    def _flush(self, now_s: float) -> None:
        """A stretch of a long call before this one counts as idle where it was, and is added here: bins are wider than calls."""
        amounts = {"held": now_s - self._since_s, "busy": self._busy_s, "setup": self._setup_s}
        bin_s = 0.0
        for row, num_devices in self._rows.items():
            for activity, seconds in amounts.items():
                if seconds:
                    timeline = self._cluster.timeline(row, activity)
                    timeline.add(self._since_s, now_s, seconds * num_devices)
                    bin_s = timeline.bin_s
        self._since_s, self._busy_s, self._setup_s = now_s, 0.0, 0.0
        self._next_flush_s = now_s + max(self.FLUSH_S, bin_s)
