"""The systems of `benchmarks.plexrl`: who has which workers. Everything else is the same."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from plait.cluster.groups.messages import ConfigureGroup
from plait.cluster.groups.router import Router
from plait.cluster.groups.worker_groups import WorkerGroups
from plait.cluster.messages import ROLLOUT, TRAIN
from plait.placement.demand_trace import FunctionRecord
from plait.scheduling.setup_times import SetupTimes

ROLES = (ROLLOUT, TRAIN)
UNLIMITED_BYTES = 1 << 40
DEVICE_SHARE = 0.5
"""Of what all deployments of a group take, that its device has room for."""


@dataclass(frozen=True, slots=True)
class System:
    name: str
    groups: Mapping[str, str] | None = None
    """Worker group by role, with "{job}" in the name if each job has its own; None: workers outside of groups."""
    is_colocated: bool = False
    """Without groups: one worker of a job does both, else one each."""
    is_alone: bool = False
    """Jobs run one after another, each on workers of its own."""
    order: str = "hrrs"
    is_limited: bool = True
    """Devices have room for `DEVICE_SHARE`."""

    def group_of(self, job: str, role: str) -> str:
        assert self.groups is not None
        return self.groups[role].format(job=job)

    def members(self, jobs: Sequence[str]) -> dict[str, list[str]]:
        """Deployments of each group."""
        found: dict[str, list[str]] = {}
        for job in jobs:
            for role in ROLES:
                found.setdefault(self.group_of(job, role), []).append(f"{job}/{role}")
        return found

    def num_workers(self, jobs: Sequence[str]) -> int:
        """That are held."""
        return len(self.members(jobs)) if self.groups is not None else len(jobs) * (1 if self.is_colocated else 2)


ONE_GROUP = {ROLLOUT: "all", TRAIN: "all"}
TWO_GROUPS = {ROLLOUT: "rollout", TRAIN: "train"}
SHARED_TRAINING = {ROLLOUT: "rollout-{job}", TRAIN: "train"}

ISOLATED = System("isolated", is_alone=True)
SPLIT = System("split")
COLOCATED = System("colocated", is_colocated=True)
UNLIMITED = System("one group, all fits", ONE_GROUP, is_limited=False)
PLAIT_TRAINING = System("shared training group", SHARED_TRAINING)
PLAIT_TWO = System("two groups", TWO_GROUPS)
PLAIT_ONE = System("one group", ONE_GROUP)
ORDERED = tuple(
    System(f"one group, {name}", ONE_GROUP, order=name.replace(" ", "_"))
    for name in ("fifo", "round robin", "least recently served", "shortest first")
)
SYSTEMS = (ISOLATED, UNLIMITED, SPLIT, COLOCATED, PLAIT_TRAINING, PLAIT_TWO, PLAIT_ONE, *ORDERED)
"""The first tells what jobs do alone, the second what they take on a device."""
QUICK_SYSTEMS = (ISOLATED, UNLIMITED, SPLIT, COLOCATED, PLAIT_TWO, PLAIT_ONE, ORDERED[0])


class RecordingSetups(SetupTimes):
    """What each deployment's moves to and from the device took, in which a call waited for them."""

    def __init__(self) -> None:
        super().__init__()
        self.loads_s: dict[str, list[float]] = {}
        self.offloads_s: dict[str, list[float]] = {}

    def observe_load(self, deployment: str, tier: str, seconds: float) -> None:
        self.loads_s.setdefault(deployment, []).append(seconds)
        super().observe_load(deployment, tier, seconds)

    def observe_offload(self, deployment: str, seconds: float) -> None:
        self.offloads_s.setdefault(deployment, []).append(seconds)
        super().observe_offload(deployment, seconds)


class RecordingGroups(WorkerGroups):
    def __init__(self, settings: Sequence[ConfigureGroup], router: Router, order: str, max_restarts: int) -> None:
        self.records: dict[str, list[FunctionRecord]] = {}
        """What each job has demanded."""
        self.setups: dict[str, RecordingSetups] = {}
        super().__init__(settings, router, order, max_restarts)
        for name, group in self.groups.items():
            self.setups[name] = group.dispatcher.setups = RecordingSetups()
            group.dispatcher.lose_all()  # Nothing is there yet: who asks for setups asks these.

    def _recorded(self, job: str, record: FunctionRecord) -> None:
        self.records.setdefault(job, []).append(record)
        super()._recorded(job, record)


def make_groups(system: System, jobs: Sequence[str], sizes: Mapping[str, int], folder: Path) -> RecordingGroups:
    """`sizes`: bytes on the device by deployment; needed unless the system has room for all."""
    settings: list[ConfigureGroup] = []
    routes: dict[str, str] = {}
    for name, members in system.members(jobs).items():
        routes |= dict.fromkeys(members, name)
        device_bytes = budget([sizes[member] for member in members]) if system.is_limited else UNLIMITED_BYTES
        settings.append(
            ConfigureGroup(
                name=name,
                threads=1,
                device="cpu",
                device_bytes=device_bytes,
                host_bytes=None,
                host_folder=str(folder / "host"),
                folder="",
                disk_bytes=0,
            )
        )
    return RecordingGroups(settings, Router(routes), system.order, max_restarts=0)


def budget(sizes: Sequence[int]) -> int:
    """Of a device: a share of all, but room for the largest."""
    return max(int(DEVICE_SHARE * sum(sizes)), max(sizes))
