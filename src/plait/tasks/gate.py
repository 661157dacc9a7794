"""The policy gate: may a batch train its task's next version? Pure.

- Strict (`max_staleness` 0): every sampled token was drawn by the latest version.
- Otherwise no token may be older than `max_staleness` versions.
- None may come from a version that is not committed yet, from another task, or from another tenant.
"""

from collections.abc import Iterable

from plait.types.errors import PolicyError
from plait.types.policy import PolicyVersion
from plait.types.trajectory import TrajectoryBatch


def batch_policies(batch: TrajectoryBatch) -> list[PolicyVersion]:
    """The policy of every sampled segment."""
    return [s.policy for trajectory in batch.trajectories for s in trajectory.segments if s.policy is not None]


def check_policies(
    policies: Iterable[PolicyVersion], latest: PolicyVersion, max_staleness: int, committed_version: int | None = None
) -> None:
    """Raise PolicyError for the first stamp that may not train `latest`.

    A batch can be complete before the version it will train is: then `committed_version` is the newest that exists by now.
    """
    newest = latest.version if committed_version is None else min(committed_version, latest.version)
    for policy in policies:
        if (policy.tenant, policy.task) != (latest.tenant, latest.task):
            raise PolicyError(
                f"a token of policy {policy} is in a batch of {latest.tenant}/{latest.task}.", "Batches are not mixed."
            )
        if policy.version > newest:
            raise PolicyError(
                f"a token of policy {policy} cannot train {latest}: version {newest} is the newest that exists.",
                "Stamp tokens with the version that drew them.",
            )
        age = latest.version - policy.version
        if age > max_staleness:
            raise PolicyError(
                f"a token of policy {policy} cannot train {latest}: its age is {age}, max_staleness is {max_staleness}.",
                "Roll out again with the latest version, or set max_staleness.",
            )


def mean_staleness(batch: TrajectoryBatch, latest: PolicyVersion) -> float:
    """Mean age in versions over sampled tokens; 0 of none."""
    segments = [s for trajectory in batch.trajectories for s in trajectory.segments]
    ages = [(latest.version - s.policy.version, len(s.tokens)) for s in segments if s.policy is not None]
    total = sum(count for _, count in ages)
    return sum(age * count for age, count in ages) / total if total else 0.0
