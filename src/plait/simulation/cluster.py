"""Jobs on a cluster over months: the service's own placer says where they run, its queues in which order their calls do.

`simulate_jobs` is the way in. The same cluster, jobs, policy, order and seed give the same result, to the byte.
"""

from collections.abc import Callable, Mapping, Sequence

import simpy

from plait.placement.decision import Action, Decision, PoolPlacement
from plait.placement.job import Role
from plait.placement.placer import Placer
from plait.placement.policies import Isolated, Pack, Spread, SpreadBackfill
from plait.placement.resource_view import Slice
from plait.residency.tier import Tier
from plait.scheduling.orders import ORDERS
from plait.simulation.cluster_shape import ClusterShape, NodeFailure
from plait.simulation.costs import CostModel
from plait.simulation.group_meter import ClusterMeter, GroupMeter
from plait.simulation.group_residency import CostRates, GroupResidency
from plait.simulation.groups import OnBusy, SimulatedGroup
from plait.simulation.job_book import JobBook
from plait.simulation.job_pools import placed_job
from plait.simulation.job_shape import JobShape
from plait.simulation.job_tracing import EVERY_STEPS, JobTracing
from plait.simulation.jobs import SimulatedJob
from plait.simulation.jobs_result import JobsResult
from plait.types.errors import ConfigError

POLICIES: Mapping[str, type[Placer]] = {
    "isolated": Isolated, "pack": Pack, "spread": Spread, "spread+backfill": SpreadBackfill,
}  # fmt: skip


OnTime = Callable[[float, float], None]
"""(Simulated time, share of all steps that are done)"""


def simulate_jobs(
    cluster: ClusterShape,
    jobs: Sequence[JobShape],
    policy: str,
    order: str = "hrrs",
    seed: int = 0,
    failures: Sequence[NodeFailure] = (),
    until_s: float | None = None,
    on_busy: OnBusy | None = None,
    costs_of: Callable[[str, int], CostModel] | None = None,
    retrace_steps: int = EVERY_STEPS,
    on_time: OnTime | None = None,
) -> JobsResult:
    """Until all jobs have ended, or `until_s`.

    `policy`: of POLICIES; `order`: of `scheduling.orders.ORDERS`. `costs_of(model, devices)`: what moving state takes, by the
    cluster's roofline unless given. `on_busy` is told of all that groups do, `on_time` once in a simulated hour.
    ConfigError for an unknown name, or jobs of one id.
    """
    for field, name, known in (("policy", policy, POLICIES), ("order", order, ORDERS)):
        if name not in known:
            raise ConfigError(f'{field} = "{name}" is not known.', f"Known are {', '.join(known)}.")
    simulated = SimulatedCluster(cluster, policy, order, seed, on_busy, costs_of, retrace_steps)
    simulated.add(jobs, failures)
    return simulated.run(until_s, on_time)


class SimulatedCluster:
    def __init__(
        self, shape: ClusterShape, policy: str, order: str, seed: int, on_busy: OnBusy | None = None,
        costs_of: Callable[[str, int], CostModel] | None = None, retrace_steps: int = EVERY_STEPS,
    ) -> None:  # fmt: skip
        self.env = simpy.Environment()
        self.shape, self._policy, self._order, self._seed = shape, policy, order, seed
        self._on_busy, self._costs_of, self._retrace_steps = on_busy, costs_of or shape.costs, retrace_steps
        self.nodes = {node.node_id: node for node in shape.nodes()}
        self.placer = POLICIES[policy](self.nodes.values(), order=ORDERS[order])
        self.meter = ClusterMeter()
        self.groups: dict[int, SimulatedGroup] = {}
        self.book = JobBook()
        self._jobs: dict[str, SimulatedJob] = {}
        self._tracings: dict[str, JobTracing] = {}
        self._on: dict[str, dict[Role, int]] = {}
        """Running job -> where its parts are."""
        self._num_decisions = self._num_steps = self._steps_done = 0

    def add(self, jobs: Sequence[JobShape], failures: Sequence[NodeFailure] = ()) -> None:
        for shape in jobs:
            self.book.add(shape)
            self._num_steps += shape.steps
            self._at(shape.arrival_s, lambda shape=shape: self._arrive(shape))  # type: ignore[misc]
        for failure in failures:
            if failure.node_id not in self.nodes:
                raise ConfigError(f"failure of node {failure.node_id!r}, which is not there.", f"Nodes are {self.nodes.keys()}.")
            self._at(failure.at_s, lambda failure=failure: self._fail(failure))  # type: ignore[misc]

    def run(self, until_s: float | None = None, on_time: OnTime | None = None) -> JobsResult:
        if on_time is not None:
            self._tell_time(on_time)
        self.env.run(until=until_s)
        for group in self.groups.values():
            group.close()
        return self.book.result(self._policy, self._order, self.shape, self.meter, self.env.now, self._num_decisions)

    def _tell_time(self, on_time: OnTime) -> None:
        on_time(self.env.now, self._steps_done / max(1, self._num_steps))
        if self.book.num_open and self.env.peek() < float("inf"):  # Jobs wait for ever where too few nodes are left.
            self._at(self.env.now + 3600.0, lambda: self._tell_time(on_time))

    def _at(self, time_s: float, act: Callable[[], None]) -> None:
        self.env.timeout(max(0.0, time_s - self.env.now)).callbacks.append(lambda _: act())

    # ---- what happens

    def _arrive(self, shape: JobShape) -> None:
        job = SimulatedJob(self.env, shape, str(self._seed), self._step_ended, self._ended)
        self._jobs[shape.job_id] = job
        costs = {role: self._costs_of(shape.model, part.num_devices) for role, part in shape.parts.items()}
        self._apply([self.placer.submit(placed_job(shape, costs, self.shape.switch_s), self.env.now)])

    def _step_ended(self, job: SimulatedJob) -> None:
        self._steps_done += 1
        tracing = self._tracings.get(job.shape.job_id)
        look = tracing.step_ended(self.env.now) if tracing is not None else None
        if look is not None:
            self._apply(self.placer.traced(job.shape.job_id, look, self.env.now))

    def _ended(self, job: SimulatedJob) -> None:
        self._steps_done += 1
        job_id = job.shape.job_id
        self._leave(job)
        self.book.ended(job, self.env.now)
        del self._jobs[job_id]
        self._apply(self.placer.job_ended(job_id, self.env.now))

    def _fail(self, failure: NodeFailure) -> None:
        if failure.node_id not in self.placer.groups.view:
            return  # It is down already.
        self._apply(self.placer.node_left(failure.node_id, self.env.now))
        if failure.down_s < float("inf"):
            self._at(self.env.now + failure.down_s, lambda: self._return(failure.node_id))

    def _return(self, node_id: str) -> None:
        self._apply(self.placer.node_joined(self.nodes[node_id], self.env.now))

    # ---- decisions

    def _apply(self, decisions: Sequence[Decision]) -> None:
        """First who stops or moves leaves; then groups that are no more close; only then does anybody enter."""
        self._num_decisions += len(decisions)
        entering: dict[str, Decision] = {}
        for decision in decisions:
            if decision.action is Action.REJECTED:
                self.book.rejected(decision.job_id)
                del self._jobs[decision.job_id]
            elif decision.action is Action.QUEUED:
                self._stop(self._jobs[decision.job_id])
                entering.pop(decision.job_id, None)
            else:
                entering[decision.job_id] = decision
        for decision in entering.values():
            self._make_way(decision)
        self._close_groups()
        for decision in entering.values():
            self._enter(self._jobs[decision.job_id], decision)

    def _stop(self, job: SimulatedJob) -> None:
        if job.is_running:
            job.stop()
            self._leave(job)
            self.book.stopped(job.shape.job_id)

    def _make_way(self, decision: Decision) -> None:
        """A job that moves leaves the groups that it will not be on."""
        job_id = decision.job_id
        places = _places(decision)
        for role, group_id in list(self._on.get(job_id, {}).items()):
            if places[role] != group_id:
                self._jobs[job_id].withdraw(role)
                self._part_leaves(self._jobs[job_id], role)

    def _enter(self, job: SimulatedJob, decision: Decision) -> None:
        job_id, now_s = job.shape.job_id, self.env.now
        is_new = not job.is_running
        on = self._on.setdefault(job_id, {})
        groups: dict[Role, SimulatedGroup] = {}
        for pool in decision.pools:
            group = self._group(pool, job.shape.model)
            for role in pool.roles:
                groups[role] = group
                if role not in on:
                    group.join(job.deployment(role), job.bytes_of(role), Tier.DISK if is_new else Tier.HOST)
                    self.book.joins(job_id, pool.group_id, group.meter.num_devices, now_s)
                on[role] = pool.group_id
        if is_new:
            self.book.started(job, now_s)
            if self.placer.is_sharing:
                self._tracings[job_id] = JobTracing(job, self._retrace_steps)
            job.start(groups, now_s + decision.shift_s)
        else:
            self.book.moved(job_id)
            job.resume(groups, now_s + decision.shift_s)

    def _leave(self, job: SimulatedJob) -> None:
        for role in list(self._on[job.shape.job_id]):
            self._part_leaves(job, role)
        del self._on[job.shape.job_id]
        self._tracings.pop(job.shape.job_id, None)

    def _part_leaves(self, job: SimulatedJob, role: Role) -> None:
        group_id = self._on[job.shape.job_id].pop(role)
        self.groups[group_id].leave(job.deployment(role))
        self.book.leaves(job.shape.job_id, group_id, self.env.now)

    def _group(self, pool: PoolPlacement, model: str) -> SimulatedGroup:
        if pool.group_id not in self.groups:
            self.groups[pool.group_id] = self._open(pool.group_id, pool.slices, model)
        return self.groups[pool.group_id]

    def _open(self, group_id: int, slices: Sequence[Slice], model: str) -> SimulatedGroup:
        """`model`: of the job that comes first; how fast bytes move is the same for all."""
        rows: dict[str, int] = {}
        for part in slices:
            row = self.shape.lane_of(self.nodes[part.node_id])
            rows[row] = rows.get(row, 0) + len(part.devices)
        num_devices = sum(rows.values())
        budget = int(self.shape.accelerator.memory_bytes * self.shape.state_share) * num_devices
        residency = GroupResidency(budget, CostRates(self._costs_of(model, num_devices), self.shape.switch_s))
        meter = GroupMeter(self.meter, rows, self.env.now)
        return SimulatedGroup(self.env, str(group_id), residency, ORDERS[self._order](), meter, self._on_busy)

    def _close_groups(self) -> None:
        for group_id in self.groups.keys() - self.placer.groups.groups.keys():
            self.groups.pop(group_id).close()


def _places(decision: Decision) -> dict[Role, int]:
    return {role: pool.group_id for pool in decision.pools for role in pool.roles}
