"""The time of each job as if it ran alone: it stands still while others, or a switch, keep the job waiting. Pure.

A job is a base model, with all of its deployments. In this time its trace tells its demand alone, whoever shares the group.
"""


class OwnTimes:
    """Shared by all groups, so that a job's time goes on where it has moved to."""

    def __init__(self) -> None:
        self._delays_s: dict[str, float] = {}

    def delay(self, job: str, seconds: float) -> None:
        self._delays_s[job] = self.delay_s(job) + seconds

    def delay_s(self, job: str) -> float:
        """All so far."""
        return self._delays_s.get(job, 0.0)

    def own_s(self, job: str, now_s: float) -> float:
        return now_s - self.delay_s(job)


def job_of(deployment: str) -> str:
    """Deployments are named `JOB/WORKER`; any other is a job by itself."""
    return deployment.rpartition("/")[0] or deployment
