"""The training calls that wait in a worker, whoever asked for them: managed tasks and models that a client drives take turns here.

A job runs slice by slice; which one goes next is `TenantSlices`' decision.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from plait.cluster.messages import FromWorker
from plait.training.tenant_slices import TenantSlices


@dataclass(frozen=True, slots=True)
class Progress:
    """What a slice has brought."""

    is_over: bool = False
    """The job is complete, or has failed."""
    replies: Sequence[FromWorker] = ()
    num_tokens: int = 0
    """Trained, if the job is complete."""


class Job(Protocol):
    """`run` does one slice. It raises nothing: that a job failed is one of its replies."""

    @property
    def owner(self) -> str:
        """The task or the model that it belongs to."""
        ...

    @property
    def tenant(self) -> str: ...

    @property
    def num_slices_left(self) -> int: ...

    def run(self, num_waited: int) -> Progress:
        """`num_waited` slices of other tenants have run since its tenant began to wait for this one."""
        ...


class JobQueue:
    def __init__(self) -> None:
        self._slices = TenantSlices()
        self._jobs: dict[str, Job] = {}

    def add(self, name: str, job: Job) -> None:
        """Raise ValueError if a job of that name is in the queue already."""
        self._slices.add(name, job.num_slices_left, job.tenant)
        self._jobs[name] = job

    def set_weight(self, tenant: str, weight: float) -> None:
        """A tenant's share of the slices, against others that wait too."""
        self._slices.set_weight(tenant, weight)

    def remove(self, name: str) -> None:
        """Drop a job, complete or not; an unknown name is fine."""
        self._slices.remove(name)
        self._jobs.pop(name, None)

    @property
    def has_work(self) -> bool:
        return bool(self._jobs)

    def work(self) -> tuple[str, Progress]:
        """Run one slice of the job whose turn it is: whose it was, and what came of it."""
        name = self._slices.next()
        job = self._jobs[name]
        progress = job.run(self._slices.num_waited(name))
        self._slices.ran(name)
        if progress.is_over:
            self.remove(name)
        return job.owner, progress
