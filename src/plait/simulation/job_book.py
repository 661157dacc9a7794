"""What became of each job, and the result that follows. One record a job, whatever it does."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from plait.placement.job import Role
from plait.simulation.cluster_shape import ClusterShape
from plait.simulation.distribution import Distribution, Summary
from plait.simulation.group_meter import ACTIVITIES, ClusterMeter
from plait.simulation.job_shape import JobShape
from plait.simulation.jobs import SimulatedJob
from plait.simulation.jobs_result import JobOutcome, JobsResult, RowTimeline
from plait.types.errors import ConfigError


@dataclass(slots=True)
class _Record:
    shape: JobShape
    start_s: float | None = None
    end_s: float | None = None
    job: SimulatedJob | None = None
    steps_done: int = 0
    own_s: float = 0.0
    device_s: float = 0.0
    restarts: int = 0
    moves: int = 0
    is_rejected: bool = False


@dataclass(slots=True)
class _Membership:
    """Who is on a group, and with how many parts. Each pays an equal share of its time."""

    num_devices: int
    since_s: float
    parts: Counter[str] = field(default_factory=Counter)


class JobBook:
    def __init__(self) -> None:
        self.num_open = 0
        """Jobs that have not ended, and may."""
        self._records: dict[str, _Record] = {}
        self._memberships: dict[int, _Membership] = {}

    def add(self, shape: JobShape) -> None:
        if shape.job_id in self._records:
            raise ConfigError(f"two jobs have the id {shape.job_id!r}.", "Give every job an id of its own.")
        self._records[shape.job_id] = _Record(shape)
        self.num_open += 1

    # ---- events

    def started(self, job: SimulatedJob, now_s: float) -> None:
        record = self._records[job.shape.job_id]
        record.job = job
        if record.start_s is None:
            record.start_s = now_s

    def stopped(self, job_id: str) -> None:
        self._records[job_id].restarts += 1

    def moved(self, job_id: str) -> None:
        self._records[job_id].moves += 1

    def rejected(self, job_id: str) -> None:
        self._records[job_id].is_rejected = True
        self.num_open -= 1

    def ended(self, job: SimulatedJob, now_s: float) -> None:
        self.num_open -= 1
        record = self._records[job.shape.job_id]
        record.end_s, record.steps_done, record.own_s, record.job = now_s, job.steps_done, job.own_s, None

    def joins(self, job_id: str, group_id: int, num_devices: int, now_s: float) -> None:
        """A part of it."""
        membership = self._memberships.setdefault(group_id, _Membership(num_devices, now_s))
        self._charge(membership, now_s)
        membership.parts[job_id] += 1

    def leaves(self, job_id: str, group_id: int, now_s: float) -> None:
        membership = self._memberships[group_id]
        self._charge(membership, now_s)
        membership.parts[job_id] -= 1
        if not membership.parts[job_id]:
            del membership.parts[job_id]
        if not membership.parts:
            del self._memberships[group_id]

    def _charge(self, membership: _Membership, now_s: float) -> None:
        for job_id in membership.parts:
            share = (now_s - membership.since_s) * membership.num_devices / len(membership.parts)
            self._records[job_id].device_s += share
        membership.since_s = now_s

    # ---- result

    def result(
        self, policy: str, order: str, shape: ClusterShape, meter: ClusterMeter, now_s: float, num_decisions: int
    ) -> JobsResult:
        for membership in self._memberships.values():
            self._charge(membership, now_s)
        outcomes = tuple(self._outcome(record) for record in self._records.values())
        ended = [outcome for outcome in outcomes if outcome.end_s is not None]
        held = meter.held_device_s or 1.0
        service = meter.service_device_s
        timelines = _timelines(shape, meter, now_s)
        return JobsResult(
            policy, order, shape.num_devices, now_s,
            makespan_s=max((outcome.end_s or 0.0 for outcome in ended), default=0.0),
            num_jobs=len(outcomes), num_ended=len(ended), num_steps=sum(outcome.steps_done for outcome in outcomes),
            num_calls=meter.num_calls, num_switches=meter.num_switches, num_decisions=num_decisions,
            device_hours=meter.held_device_s / 3600,
            busy_share=sum(service.values()) / held,
            rollout_share=service[Role.ROLLOUT] / held, train_share=service[Role.TRAIN] / held,
            setup_share=meter.setup_device_s / held, lost_share=meter.lost_device_s / held,
            decode_realised_to_peak=meter.filled_device_s / (meter.held_rollout_device_s or 1.0),
            device_hours_per_step=_per_step(outcomes),
            job_waits=summary(outcome.start_s - outcome.arrival_s for outcome in outcomes if outcome.start_s is not None),
            call_waits=meter.call_waits.summary(),
            slowdowns=summary(outcome.slowdown for outcome in ended if outcome.slowdown is not None),
            bin_s=timelines[0], timelines=timelines[1], jobs=outcomes,
        )  # fmt: skip

    @staticmethod
    def _outcome(record: _Record) -> JobOutcome:
        shape, job = record.shape, record.job
        return JobOutcome(
            shape.job_id, shape.kind, shape.model, shape.num_devices, shape.arrival_s, record.start_s, record.end_s,
            job.steps_done if job else record.steps_done, job.own_s if job else record.own_s, record.device_s / 3600,
            record.restarts, record.moves, record.is_rejected,
        )  # fmt: skip


def summary(values: Iterable[float]) -> Summary:
    distribution = Distribution()
    for value in values:
        distribution.add(value)
    return distribution.summary()


def _per_step(outcomes: Iterable[JobOutcome]) -> dict[str, float]:
    hours: Counter[str] = Counter()
    steps: Counter[str] = Counter()
    for outcome in outcomes:
        hours[outcome.model] += outcome.device_hours  # type: ignore[assignment]
        steps[outcome.model] += outcome.steps_done
    return {model: hours[model] / steps[model] for model in sorted(steps) if steps[model]}


def _timelines(shape: ClusterShape, meter: ClusterMeter, end_s: float) -> tuple[float, tuple[RowTimeline, ...]]:
    """All as wide as the widest."""
    devices: Counter[str] = Counter()
    for node in shape.nodes():
        devices[shape.lane_of(node)] += node.num_devices
    lines = {row: [meter.timeline(row, activity) for activity in ACTIVITIES] for row in sorted(devices)}
    bin_s = max(line.bin_s for row in lines.values() for line in row)
    rows = []
    for row, parts in lines.items():
        for line in parts:
            line.widen(bin_s)
        held, busy, setup = (tuple(amount / bin_s for amount in line.until(end_s)) for line in parts)
        rows.append(RowTimeline(row, devices[row], held, busy, setup))
    return bin_s, tuple(rows)
