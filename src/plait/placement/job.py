"""What a job asks for: pools of devices, each for one or several roles, and how much slower than alone it may run."""

from enum import StrEnum

import msgspec

from plait.types.errors import ConfigError

DEFAULT_SLO = 1.2
"""A co-run may make a step at most this many times as long as alone."""


class Role(StrEnum):
    ROLLOUT = "rollout"
    TRAIN = "train"


class Pool(msgspec.Struct, frozen=True):
    """Devices that a job uses together. Two pools of one role each: split; one pool of both roles: the same devices take turns.

    `bytes_per_device`: all that the job keeps there (weights, moments, KV); `switch_s`: offload another job, load this one.
    """

    roles: tuple[Role, ...]
    num_devices: int
    bytes_per_device: int = 0
    switch_s: float = 0.0


class Job(msgspec.Struct, frozen=True):
    """`kind`: its demand is like that of others of the kind (model, algorithm, sizes); `expected_s`: its length when alone."""

    job_id: str
    kind: str
    pools: tuple[Pool, ...]
    slo: float = DEFAULT_SLO
    expected_s: float = float("inf")

    def __post_init__(self) -> None:
        roles = [role for pool in self.pools for role in pool.roles]
        if not roles or len(set(roles)) != len(roles):
            raise ConfigError(f"job {self.job_id}: pools serve the roles {roles}.", "Name every role in exactly one pool.")
        if any(pool.num_devices < 1 or pool.bytes_per_device < 0 or pool.switch_s < 0 for pool in self.pools):
            raise ConfigError(
                f"job {self.job_id}: a pool has less than 1 device, or less than 0 bytes or seconds.", "Mend the pool."
            )
        if self.slo < 1 or self.expected_s <= 0:
            raise ConfigError(
                f"job {self.job_id}: slo {self.slo}, expected_s {self.expected_s}.", "slo is 1 or more, expected_s above 0."
            )
