"""What a tenant may use. Pure.

- Live adapters, stored bytes and concurrent samples are counted: taken, given back, never above the limit by `take`.
- Tokens per minute are a `TokenBucket`; giving back what was not sampled after all refills it.
- A `take` of several takes all or nothing. No limit (None) refuses nothing and is counted all the same.
- A limit lowered below what is used takes nothing away; it refuses until enough was given back.
"""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from plait.operations.token_bucket import TokenBucket
from plait.types.errors import PlaitError

SAMPLES_RETRY_S = 1.0
"""When to try again while a tenant's own samples are in the way: samples end all the time."""


class Quota(StrEnum):
    LIVE_ADAPTERS = "live_adapters"
    STORED_BYTES = "stored_bytes"
    CONCURRENT_SAMPLES = "concurrent_samples"
    TOKENS_PER_MINUTE = "tokens_per_minute"


REMEDY = {
    Quota.LIVE_ADAPTERS: "Finish a session whose adapters are not needed, or ask the operator for a higher quota.",
    Quota.STORED_BYTES: "Delete checkpoints or give them a shorter life, or ask the operator for a higher quota.",
    Quota.CONCURRENT_SAMPLES: "Wait for samples to finish.",
    Quota.TOKENS_PER_MINUTE: "Wait.",
}


class QuotaLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """None: no limit."""

    live_adapters: int | None = None
    stored_bytes: int | None = None
    concurrent_samples: int | None = None
    tokens_per_minute: int | None = None

    def __post_init__(self) -> None:
        for quota in Quota:
            limit = self.of(quota)
            if limit is not None and limit < 0:
                raise ValueError(f"quota {quota} is {limit}: it must be 0 or more")

    def of(self, quota: Quota) -> int | None:
        limit: int | None = getattr(self, quota)
        return limit


class QuotaExceeded(PlaitError):
    """`retry_after_s` None: waiting alone does not help."""

    def __init__(self, message: str, quota: Quota, limit: int, retry_after_s: float | None) -> None:
        super().__init__(message, REMEDY[quota])
        self.quota, self.limit, self.retry_after_s = quota, limit, retry_after_s


class Quotas:
    def __init__(self, default: QuotaLimits | None = None) -> None:
        self.default = default or QuotaLimits()
        self._limits: dict[str, QuotaLimits] = {}
        self._used: dict[str, Counter[Quota]] = {}
        self._buckets: dict[str, TokenBucket] = {}

    def limits(self, tenant_id: str) -> QuotaLimits:
        return self._limits.get(tenant_id, self.default)

    def set_limits(self, tenant_id: str, limits: QuotaLimits, now: float) -> None:
        """Holds from now on; what is used stays used."""
        self._limits[tenant_id] = limits
        bucket, per_minute = self._buckets.get(tenant_id), limits.tokens_per_minute
        if per_minute is None:
            self._buckets.pop(tenant_id, None)
        elif bucket is not None:
            bucket.set_per_minute(per_minute, now)

    def used(self, tenant_id: str, quota: Quota) -> int:
        """What is taken and not given back; of TOKENS_PER_MINUTE: ever."""
        return self._used.get(tenant_id, Counter())[quota]

    def check(self, tenant_id: str, amounts: Mapping[Quota, int], now: float) -> None:
        """Raise QuotaExceeded for the first of the amounts that may not be taken now."""
        for quota, amount in amounts.items():
            limit = self.limits(tenant_id).of(quota)
            if limit is None:
                continue
            if quota == Quota.TOKENS_PER_MINUTE:
                self._check_bucket(tenant_id, limit, amount, now)
            else:
                self._check_count(tenant_id, quota, limit, amount)

    def take(self, tenant_id: str, amounts: Mapping[Quota, int], now: float) -> None:
        """All of the amounts, or QuotaExceeded and nothing."""
        self.check(tenant_id, amounts, now)
        self.charge(tenant_id, amounts, now)

    def charge(self, tenant_id: str, amounts: Mapping[Quota, int], now: float) -> None:
        """Take without asking what was used already: stored state after a restart, tokens that were not foreseen."""
        used = self._used.setdefault(tenant_id, Counter())
        for quota, amount in amounts.items():
            used[quota] += amount
            limit = self.limits(tenant_id).tokens_per_minute
            if quota == Quota.TOKENS_PER_MINUTE and limit is not None:
                self._bucket(tenant_id, limit, now).take(amount, now)

    def give_back(self, tenant_id: str, amounts: Mapping[Quota, int], now: float) -> None:
        """ValueError if it is more than was taken."""
        for quota, amount in amounts.items():
            if amount > self.used(tenant_id, quota):
                raise ValueError(f"tenant {tenant_id!r} gives back {amount} {quota} of {self.used(tenant_id, quota)}")
        self.charge(tenant_id, {quota: -amount for quota, amount in amounts.items()}, now)

    def _bucket(self, tenant_id: str, limit: int, now: float) -> TokenBucket:
        return self._buckets.setdefault(tenant_id, TokenBucket(limit, now))

    def _check_bucket(self, tenant_id: str, limit: int, amount: int, now: float) -> None:
        wait_s = self._bucket(tenant_id, limit, now).wait_s(amount, now)
        if wait_s > 0:
            retry_after_s = wait_s if wait_s < float("inf") else None
            message = f"{amount} more tokens would exceed tokens_per_minute = {limit} of this tenant."
            raise QuotaExceeded(message, Quota.TOKENS_PER_MINUTE, limit, retry_after_s)

    def _check_count(self, tenant_id: str, quota: Quota, limit: int, amount: int) -> None:
        used = self.used(tenant_id, quota)
        if amount > 0 and used + amount > limit:
            may_wait = quota == Quota.CONCURRENT_SAMPLES and amount <= limit
            message = f"{quota} would be {used + amount}, and {limit} is the limit of this tenant."
            raise QuotaExceeded(message, quota, limit, SAMPLES_RETRY_S if may_wait else None)
