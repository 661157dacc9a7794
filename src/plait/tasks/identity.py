"""What a run's tasks are called where other runs are too: at workers, in policies, in queues. Pure."""

from dataclasses import dataclass

from plait.types.policy import LOCAL_TENANT, PolicyVersion


@dataclass(frozen=True, slots=True)
class RunIdentity:
    tenant: str = LOCAL_TENANT
    run_id: str = ""
    """Unique among all runs of the workers; empty: they serve this run alone."""

    def key(self, task: str) -> str:
        """A name that no other run's task has."""
        return f"{self.run_id}/{task}" if self.run_id else task

    def task(self, key: str) -> str:
        return key.removeprefix(f"{self.run_id}/") if self.run_id else key

    def policy(self, task: str, version: int) -> PolicyVersion:
        return PolicyVersion(self.tenant, self.key(task), version)


ALONE = RunIdentity()
"""A run that has its workers to itself."""
