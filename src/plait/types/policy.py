"""Names of policies: which adapter, at which version."""

import msgspec

LOCAL_TENANT = "local"
"""The tenant of a run on one machine; there is no path without a tenant."""


class PolicyVersion(msgspec.Struct, frozen=True, order=True):
    """One immutable state of one task's adapter. Version n is the result of n optimizer steps."""

    tenant: str
    task: str
    version: int

    def __str__(self) -> str:
        return f"{self.tenant}/{self.task}@{self.version}"


class AdapterRef(msgspec.Struct, frozen=True):
    """Where a policy version's weights lie. `path` is a PEFT folder; `digest` is of its tensors (hex)."""

    policy: PolicyVersion
    path: str
    digest: str
