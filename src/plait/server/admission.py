"""Whether a request to sample is let in now, and what it takes until it leaves. One for all ways in.

- Back-pressure and a tenant's quotas refuse at once (TooMany); what is let in holds its samples until it leaves.
- A request is charged for all tokens that it may cost; on leaving it gets back what it did not use.
"""

import time
from dataclasses import dataclass

from plait.operations.quotas import Quota, QuotaExceeded, Quotas
from plait.server.errors import TooMany

RETRY_AFTER_S = 1.0


@dataclass(slots=True)
class Admitted:
    tenant_id: str
    num_samples: int
    max_tokens: int
    used_tokens: int = 0
    """Known at the end."""


class Admission:
    def __init__(self, quotas: Quotas, max_waiting: int) -> None:
        self._quotas, self._max_waiting = quotas, max_waiting
        self.num_samples = 0
        """Let in, and not left."""

    def enter(self, tenant_id: str, num_samples: int, max_tokens: int) -> Admitted:
        """Raises TooMany."""
        if self.num_samples + num_samples > self._max_waiting:
            raise TooMany(f"{self.num_samples} samples wait in the server.", "Send it again a little later.", RETRY_AFTER_S)
        amounts = {Quota.CONCURRENT_SAMPLES: num_samples, Quota.TOKENS_PER_MINUTE: max_tokens}
        try:
            self._quotas.take(tenant_id, amounts, time.monotonic())
        except QuotaExceeded as error:
            raise TooMany(error.message, error.remedy, error.retry_after_s) from error
        self.num_samples += num_samples
        return Admitted(tenant_id, num_samples, max_tokens)

    def leave(self, admitted: Admitted) -> None:
        self.num_samples -= admitted.num_samples
        unused = admitted.max_tokens - admitted.used_tokens
        amounts = {Quota.CONCURRENT_SAMPLES: admitted.num_samples, Quota.TOKENS_PER_MINUTE: unused}
        self._quotas.give_back(admitted.tenant_id, amounts, time.monotonic())
