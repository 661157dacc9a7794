"""What a worker group has done, as totals since it was made. Pure."""

SWITCHES, SETUP_S, CALLS, WAITED_S, SERVICE_S, PREFETCHES, PREFETCH_S = (
    f"group_{name}" for name in ("switches", "setup_s", "calls", "waited_s", "service_s", "prefetches", "prefetch_s")
)
"""Deployments brought onto the device, the time that calls waited for that and for what left; calls begun, how long they had
waited, and how long they ran (of turns of sampling: as long as a chunk took). Of the switches, those that were made beside another
call, and how long they took."""


class GroupCounters:
    def __init__(self) -> None:
        self.num_switches = 0
        self.num_calls = 0
        self.setup_s = 0.0
        self.waited_s = 0.0
        self.service_s = 0.0
        self.num_prefetches = 0
        self.prefetch_s = 0.0

    def started(self, waited_s: float) -> None:
        self.num_calls += 1
        self.waited_s += waited_s

    def ended(self, service_s: float | None) -> None:
        """None: it was not measured."""
        self.service_s += service_s or 0.0

    def switched(self, setup_s: float) -> None:
        self.num_switches += 1
        self.setup_s += setup_s

    def prefetched(self, spent_s: float, waited_s: float) -> None:
        """Beside a call; the next has waited so long for the end of it."""
        self.switched(waited_s)
        self.num_prefetches += 1
        self.prefetch_s += spent_s

    @property
    def mean_delay_s(self) -> float:
        """From arrival to start."""
        return self.waited_s / max(self.num_calls, 1)

    def snapshot(self) -> dict[str, float]:
        return {
            SWITCHES: self.num_switches, SETUP_S: self.setup_s, CALLS: self.num_calls, WAITED_S: self.waited_s,
            SERVICE_S: self.service_s, PREFETCHES: self.num_prefetches, PREFETCH_S: self.prefetch_s,
        }  # fmt: skip
