"""Events in, decisions out: where each job runs. The clock is passed in; nothing here acts.

- A job of a kind without a profile gets devices of its own (cold start); one with a profile is fitted into idle windows of groups
  that are there (warm start), or gets free devices: in which order is the policy's.
- Who fits nowhere waits, first come first served. A job that could not run on the whole, empty cluster is rejected; one that could
  not since nodes left is passed over until nodes join.
- A job whose trace drifts is judged again where it is, and moved, or made to wait at the head, if that is no longer admitted.
"""

from collections.abc import Callable, Iterable, Sequence

from plait.placement.corun_group import Orders
from plait.placement.decision import Action, Decision
from plait.placement.demand_trace import DemandTrace
from plait.placement.drift import DriftSettings, Look
from plait.placement.extraction import extract
from plait.placement.fitting import Fit, Fitter, always
from plait.placement.head_plan import plan_for
from plait.placement.job import Job, Pool
from plait.placement.job_profile import JobProfile
from plait.placement.placements import Placements, rest_of
from plait.placement.resource_view import Bytes, Node, ResourceView
from plait.placement.worker_groups import PlacedJob, WorkerGroup, WorkerGroups
from plait.scheduling.orders import Hrrs
from plait.types.errors import StateError


class Placer:
    """Base of the policies; see `policies`."""

    is_sharing = True
    needs_overlap = False

    def __init__(self, nodes: Iterable[Node], drift: DriftSettings | None = None, order: Orders = Hrrs) -> None:
        """`order`: in which the groups take their calls; admission expects it."""
        self.groups = WorkerGroups(nodes)
        self.profiles: dict[str, JobProfile] = {}
        self.queue: list[Job] = []
        self.is_crowded = False
        """Whether others wait besides the job that is being placed."""
        self._fitter = Fitter(self.groups, self.cost, self.needs_overlap, order)
        self._placements = Placements(self.groups, self._fitter, drift or DriftSettings())
        self._refresh_empty()

    def cost(self, group: WorkerGroup | None, pool: Pool, load: float, overlap: float) -> float:
        """Of a pool on this group; None: on free devices. Lower is tried first."""
        raise NotImplementedError

    def submit(self, job: Job, now_s: float) -> Decision:
        if job.job_id in self.groups.jobs or any(job.job_id == other.job_id for other in self.queue):
            raise StateError(f"job {job.job_id} is here already.", "Give every job an id of its own.")
        if not self._could_fit(job):
            return Decision(
                job.job_id, Action.REJECTED, reason=f"the cluster has no room for {self._size_of(job)}, even when empty"
            )
        self.queue.append(job)
        started = self._start_new(job, now_s)
        if started is not None:
            return started
        estimate_s = self.estimated_start_s(now_s) if self._waiting()[0] is job else None
        return Decision(job.job_id, Action.QUEUED, estimated_start_s=estimate_s, reason="no place is free")

    def job_ended(self, job_id: str, now_s: float) -> list[Decision]:
        """It ended, failed or was cancelled."""
        if job_id not in self.groups.jobs:
            self._forget_queued(job_id)
            return self._drain(now_s)
        self._placements.remove(job_id, now_s)
        return self._placements.mend(now_s) + self._drain(now_s)

    def node_joined(self, node: Node, now_s: float) -> list[Decision]:
        self.groups.view.add(node)
        self._refresh_empty()
        return self._drain(now_s)

    def node_left(self, node_id: str, now_s: float) -> list[Decision]:
        """Jobs that used it stop, wait before all others in the order they were placed, and go on elsewhere if there is room."""
        held = [job_id for job_id, placed in self.groups.jobs.items() if self._uses(placed, node_id)]
        stopped = [rest_of(self._placements.remove(job_id, now_s), now_s) for job_id in held]
        self.groups.view.remove(node_id)
        self._refresh_empty()
        self.queue[:0] = stopped
        lost = [Decision(job.job_id, Action.QUEUED, reason=f"node {node_id} left") for job in stopped]
        return lost + self._placements.mend(now_s) + self._drain(now_s)

    def trace_updated(self, job_id: str, trace: DemandTrace, now_s: float) -> list[Decision]:
        """Nothing comes of a trace that tells no period yet."""
        found = extract(trace)
        return [] if found.profile is None else self.profile_updated(job_id, found.profile, now_s, found.anchor_s)

    def traced(self, job_id: str, look: Look, now_s: float) -> list[Decision]:
        """As `trace_updated` of what `look` sees, which is asked only once a decision may come of it."""
        placed = self._placed(job_id)
        due = [(look, now_s)]
        if self.is_sharing and placed.is_shared:
            due = self._placements.watches[job_id].due_looks(look, now_s)
        decisions: list[Decision] = []
        for seen, at_s in due:
            found = seen()
            if found.profile is not None:
                decisions += self.profile_updated(job_id, found.profile, at_s, found.anchor_s)
        return decisions

    def profile_updated(self, job_id: str, profile: JobProfile, now_s: float, anchor_s: float) -> list[Decision]:
        """As `trace_updated`, for who has extracted it; a period began at `anchor_s`."""
        placed = self._placed(job_id)
        self.profiles.setdefault(placed.job.kind, profile)
        if not self.is_sharing:
            return []
        if not placed.is_shared:
            return self._warm_up(placed, profile, now_s, anchor_s)
        if not self._placements.watches[job_id].observe(profile, now_s):
            return []
        self.profiles[placed.job.kind] = profile
        return self._place_anew(placed, profile, now_s, anchor_s)

    def _placed(self, job_id: str) -> PlacedJob:
        placed = self.groups.jobs.get(job_id)
        if placed is None:
            raise StateError(f"job {job_id} is not placed.", "Traces are of running jobs.")
        return placed

    def estimated_start_s(self, now_s: float) -> float | None:
        """The latest start of the head of the queue, by expected ends; None if nobody waits, or too few ends are known."""
        waiting = self._waiting()
        plan = plan_for(waiting[0], self.groups, now_s) if waiting else None
        return plan.start_s if plan is not None else None

    def slowdown(self, job_id: str) -> float:
        """Expected T_co / T_solo of a placed job."""
        return self.groups.jobs[job_id].slowdown

    def _start_new(self, job: Job, now_s: float) -> Decision | None:
        """Nothing has changed for those before it."""
        return self._try(job, now_s) if len(self.queue) == 1 else None

    def _drain(self, now_s: float) -> list[Decision]:
        decisions = self._start_heads(now_s)
        if self._waiting():
            moved = self._placements.consolidate(now_s) if self.is_sharing else []
            decisions += [*moved, *self._start_heads(now_s)] if moved else []
        return decisions

    def _waiting(self) -> list[Job]:
        return [job for job in self.queue if self._could_fit(job)]

    def _start_heads(self, now_s: float) -> list[Decision]:
        """From the head on, until one finds no place."""
        decisions: list[Decision] = []
        for job in self._waiting():
            decision = self._try(job, now_s)
            if decision is None:
                break
            decisions.append(decision)
        return decisions

    def _try(self, job: Job, now_s: float, accept: Callable[[Fit], bool] = always) -> Decision | None:
        profile = self.profiles.get(job.kind) if self.is_sharing else None
        self.is_crowded = len(self.queue) > 1
        if profile is not None:
            found = self._fitter.fit(job, profile, now_s, accept)
        else:
            found = self._fitter.alone(job)
            found = found if found is not None and accept(found) else None
        started = None if found is None else self._placements.start(job, profile, found, now_s)
        if started is not None:
            self.queue.remove(job)
        return started

    def _warm_up(self, placed: PlacedJob, profile: JobProfile, now_s: float, anchor_s: float) -> list[Decision]:
        """Its groups open for others, if its bytes fit in host memory."""
        return self._drain(now_s) if self._placements.warm_up(placed, profile, now_s, anchor_s) else []

    def _place_anew(self, placed: PlacedJob, profile: JobProfile, now_s: float, anchor_s: float) -> list[Decision]:
        """Where it is, if that is still admitted; elsewhere; or it waits before all others."""
        job = rest_of(placed, now_s)
        found = self._fitter.at(job, profile, placed.groups, now_s, (anchor_s - now_s) % profile.period_s)
        if found is None or self._placements.move(placed, profile, found, now_s) is None:
            found = self._fitter.fit(job, profile, now_s)
            moved = self._placements.move(placed, profile, found, now_s) if found is not None else None
            if moved is None:
                self._placements.remove(job.job_id, now_s)
                self.queue.insert(0, job)
                moved = Decision(job.job_id, Action.QUEUED, reason="its demand changed, and it now fits nowhere")
            return [moved, *self._placements.mend(now_s), *self._drain(now_s)]
        return self._drain(now_s)

    def _forget_queued(self, job_id: str) -> None:
        kept = [job for job in self.queue if job.job_id != job_id]
        if len(kept) == len(self.queue):
            raise StateError(f"job {job_id} is not here.", "It ended before, or was never submitted.")
        self.queue = kept

    def _uses(self, placed: PlacedJob, node_id: str) -> bool:
        return any(part.node_id == node_id for group in placed.groups for part in self.groups.groups[group].slices)

    def _refresh_empty(self) -> None:
        self._empty = ResourceView(self.groups.view.nodes())
        self._fits_empty: dict[Sequence[Pool], bool] = {}

    def _could_fit(self, job: Job) -> bool:
        """On the empty cluster."""
        if job.pools not in self._fits_empty:
            wanted = [(pool.num_devices, Bytes(device=pool.bytes_per_device)) for pool in job.pools]
            self._fits_empty[job.pools] = self._empty.find_all(wanted) is not None
        return self._fits_empty[job.pools]

    @staticmethod
    def _size_of(job: Job) -> str:
        return " + ".join(f"{pool.num_devices} devices of {pool.bytes_per_device} bytes" for pool in job.pools)
