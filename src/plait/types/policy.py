"""Names of policies: which adapter, or which fully trained model, at which version."""

from typing import Literal

import msgspec

Training = Literal["lora", "full"]
"""What a task trains: an adapter on the frozen base, or a copy of all its weights."""

LOCAL_TENANT = "local"
"""The tenant of a run on one machine; there is no path without a tenant."""


class PolicyVersion(msgspec.Struct, frozen=True, order=True):
    """One immutable state of one task's weights. Version n is the result of n optimizer steps."""

    tenant: str
    task: str
    version: int

    def __str__(self) -> str:
        return f"{self.tenant}/{self.task}@{self.version}"


class AdapterRef(msgspec.Struct, frozen=True):
    """Where a policy version's weights lie. `path` is a PEFT folder, or the model folder of a task that trains all weights;
    `digest` is of its tensors (hex)."""

    policy: PolicyVersion
    path: str
    digest: str
