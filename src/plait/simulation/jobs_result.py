"""What a simulation of jobs measured."""

import msgspec

from plait.simulation.distribution import Summary


class JobOutcome(msgspec.Struct, frozen=True):
    """Times in seconds; those that never came are None. `own_s`: how long it would have taken alone, with the same durations."""

    job_id: str
    kind: str
    model: str
    num_devices: int
    arrival_s: float
    start_s: float | None
    end_s: float | None
    steps_done: int
    own_s: float
    device_hours: float
    """Of the groups that it was on, shared evenly among those who are on them."""
    restarts: int = 0
    moves: int = 0
    is_rejected: bool = False

    @property
    def slowdown(self) -> float | None:
        """Time since it started, over its time alone; at least 1. Waiting for its first place does not count."""
        if self.end_s is None or self.start_s is None:
            return None
        return (self.end_s - self.start_s) / self.own_s


class RowTimeline(msgspec.Struct, frozen=True):
    """Mean devices of a row of nodes, or of a node, in each bin: held by groups, busy with calls, busy with moving state."""

    row: str
    num_devices: int
    held: tuple[float, ...]
    busy: tuple[float, ...]
    setup: tuple[float, ...]


class JobsResult(msgspec.Struct, frozen=True):
    """Shares are of the time of devices that groups held, in use or not."""

    policy: str
    order: str
    num_devices: int
    end_s: float
    """When the simulation ended."""
    makespan_s: float
    """End of the last job that ended; 0 if none did."""
    num_jobs: int
    num_ended: int
    num_steps: int
    num_calls: int
    num_switches: int
    num_decisions: int
    device_hours: float
    busy_share: float
    rollout_share: float
    train_share: float
    setup_share: float
    lost_share: float
    """Calls that were withdrawn: their job moved or lost a node."""
    decode_realised_to_peak: float
    """Tokens that rollout calls drew, over what full batches would on all devices that rolled out, as long as they were held."""
    device_hours_per_step: dict[str, float]
    """By model."""
    job_waits: Summary
    """Seconds from arrival to start."""
    call_waits: Summary
    slowdowns: Summary
    bin_s: float
    timelines: tuple[RowTimeline, ...]
    jobs: tuple[JobOutcome, ...]
