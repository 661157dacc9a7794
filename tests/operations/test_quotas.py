"""Quotas against slow oracles: a list of all that was taken, added up anew at each question."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from plait.operations.quotas import Quota, QuotaExceeded, QuotaLimits, Quotas
from plait.operations.token_bucket import TokenBucket

PER_MINUTE = 600
COUNTED = (Quota.LIVE_ADAPTERS, Quota.STORED_BYTES, Quota.CONCURRENT_SAMPLES)
LIMITS = QuotaLimits(live_adapters=2, stored_bytes=10, concurrent_samples=3, tokens_per_minute=PER_MINUTE)
amounts = st.dictionaries(st.sampled_from(COUNTED), st.integers(0, 6))
tenants = st.sampled_from(["ada", "bob", "free"])


class QuotaMachine(RuleBasedStateMachine):
    """ada and bob have limits, free has none."""

    def __init__(self) -> None:
        super().__init__()
        self.quotas = Quotas(LIMITS)
        self.quotas.set_limits("free", QuotaLimits(), 0)
        self.log: list[tuple[str, Quota, int]] = []
        self.tokens: dict[str, list[tuple[float, int]]] = {"ada": [], "bob": [], "free": []}
        self.now = 1_800_000_000.0

    def _used(self, tenant: str, quota: Quota) -> int:
        return sum(amount for who, what, amount in self.log if (who, what) == (tenant, quota))

    def _level(self, tenant: str) -> float:
        """A bucket filled and emptied from the beginning."""
        level, last_s = float(PER_MINUTE), 0.0
        for time_s, taken in self.tokens[tenant]:
            level = min(PER_MINUTE, level + (time_s - last_s) * PER_MINUTE / 60) - taken
            last_s = time_s
        return min(PER_MINUTE, level + (self.now - last_s) * PER_MINUTE / 60)

    @rule(tenant=tenants, wanted=amounts)
    def take_counted(self, tenant: str, wanted: dict[Quota, int]) -> None:
        over = [q for q, amount in wanted.items() if amount and self._used(tenant, q) + amount > (LIMITS.of(q) or 0)]
        if over and tenant != "free":
            with pytest.raises(QuotaExceeded, match=over[0]) as error:
                self.quotas.take(tenant, wanted, self.now)
            assert (error.value.quota, error.value.limit) == (over[0], LIMITS.of(over[0]))
        else:
            self.quotas.take(tenant, wanted, self.now)
            self.log += [(tenant, quota, amount) for quota, amount in wanted.items()]

    @rule(tenant=tenants, wanted=amounts)
    def give_back(self, tenant: str, wanted: dict[Quota, int]) -> None:
        if any(amount > self._used(tenant, quota) for quota, amount in wanted.items()):
            with pytest.raises(ValueError, match="gives back"):
                self.quotas.give_back(tenant, wanted, self.now)
        else:
            self.quotas.give_back(tenant, wanted, self.now)
            self.log += [(tenant, quota, -amount) for quota, amount in wanted.items()]

    @rule(tenant=tenants, tokens=st.integers(0, 2 * PER_MINUTE), samples=st.integers(0, 1))
    def take_tokens(self, tenant: str, tokens: int, samples: int) -> None:
        wanted = {Quota.CONCURRENT_SAMPLES: samples, Quota.TOKENS_PER_MINUTE: tokens}
        lacking = min(tokens, PER_MINUTE) - self._level(tenant)
        full = bool(samples) and self._used(tenant, Quota.CONCURRENT_SAMPLES) + samples > (LIMITS.concurrent_samples or 0)
        if tenant != "free" and (full or lacking > 0.01):
            with pytest.raises(QuotaExceeded) as error:
                self.quotas.take(tenant, wanted, self.now)
            if not full:
                assert error.value.retry_after_s == pytest.approx(lacking * 60 / PER_MINUTE, abs=1e-3)
        else:
            self.quotas.take(tenant, wanted, self.now)
            self.tokens[tenant].append((self.now, tokens))
            self.log.append((tenant, Quota.CONCURRENT_SAMPLES, samples))

    @rule(seconds=st.sampled_from([0.1, 1.0, 7.0, 60.0, 1000.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def nobody_is_above(self) -> None:
        for tenant in ("ada", "bob", "free"):
            for quota in COUNTED:
                assert self.quotas.used(tenant, quota) == self._used(tenant, quota)
                assert tenant == "free" or self.quotas.used(tenant, quota) <= (LIMITS.of(quota) or 0)


TestQuotas = QuotaMachine.TestCase


@given(
    per_minute=st.integers(1, 10_000),
    requests=st.lists(st.tuples(st.floats(0, 90), st.integers(0, 20_000)), max_size=30),
)
def test_over_any_time_no_more_is_taken_than_the_rate_allows(per_minute: int, requests: list[tuple[float, int]]) -> None:
    now = 1_800_000_000.0
    bucket = TokenBucket(per_minute, now)
    taken: list[tuple[float, int]] = []
    for wait_s, tokens in requests:
        now += wait_s
        if bucket.wait_s(tokens, now) == 0:
            bucket.take(tokens, now)
            taken.append((now, tokens))
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            seconds = taken[last][0] - taken[first][0]
            total = sum(tokens for _, tokens in taken[first:last])
            largest = max([tokens for _, tokens in taken[first : last + 1]], default=0)
            assert total <= per_minute * (1 + seconds / 60) + largest + 1


@given(per_minute=st.integers(1, 10_000), debt=st.integers(0, 50_000), tokens=st.integers(1, 50_000))
def test_after_the_wait_it_may_be_taken(per_minute: int, debt: int, tokens: int) -> None:
    now = 1_800_000_000.0
    bucket = TokenBucket(per_minute, now)
    bucket.take(debt, now)
    wait_s = bucket.wait_s(tokens, now)
    assert bucket.wait_s(tokens, now + wait_s + 1e-3) == 0
    if wait_s > 0.01:
        assert bucket.wait_s(tokens, now + 0.9 * wait_s) > 0


def test_tokens_given_back_can_be_taken_at_once() -> None:
    quotas = Quotas(LIMITS)
    quotas.take("ada", {Quota.TOKENS_PER_MINUTE: 600}, 0)
    with pytest.raises(QuotaExceeded):
        quotas.take("ada", {Quota.TOKENS_PER_MINUTE: 200}, 0)
    quotas.give_back("ada", {Quota.TOKENS_PER_MINUTE: 250}, 0)
    quotas.take("ada", {Quota.TOKENS_PER_MINUTE: 200}, 0)
    assert quotas.used("ada", Quota.TOKENS_PER_MINUTE) == 550


def test_the_refusal_says_what_how_much_and_when() -> None:
    quotas = Quotas(LIMITS)
    quotas.charge("ada", {Quota.TOKENS_PER_MINUTE: 600, Quota.LIVE_ADAPTERS: 2, Quota.CONCURRENT_SAMPLES: 3}, 0)
    with pytest.raises(QuotaExceeded, match="300 more tokens would exceed tokens_per_minute = 600") as tokens:
        quotas.check("ada", {Quota.TOKENS_PER_MINUTE: 300}, 0)
    with pytest.raises(QuotaExceeded, match="live_adapters would be 3, and 2 is the limit") as adapters:
        quotas.check("ada", {Quota.LIVE_ADAPTERS: 1}, 0)
    with pytest.raises(QuotaExceeded, match="concurrent_samples would be 4") as samples:
        quotas.check("ada", {Quota.CONCURRENT_SAMPLES: 1}, 0)
    with pytest.raises(QuotaExceeded, match="concurrent_samples would be 7") as hopeless:
        quotas.check("ada", {Quota.CONCURRENT_SAMPLES: 4}, 0)
    found = [error.value.retry_after_s for error in (tokens, adapters, samples, hopeless)]
    assert found == [30.0, None, 1.0, None]
    assert all(error.value.remedy for error in (tokens, adapters, samples, hopeless))


def test_limits_change_while_they_are_used() -> None:
    quotas = Quotas(LIMITS)
    quotas.take("ada", {Quota.LIVE_ADAPTERS: 2, Quota.TOKENS_PER_MINUTE: 600}, 0)
    quotas.set_limits("ada", QuotaLimits(live_adapters=1, tokens_per_minute=60), 0)
    with pytest.raises(QuotaExceeded) as error:
        quotas.take("ada", {Quota.TOKENS_PER_MINUTE: 60}, 0)
    assert error.value.retry_after_s == pytest.approx(60)
    quotas.give_back("ada", {Quota.LIVE_ADAPTERS: 1}, 0)
    with pytest.raises(QuotaExceeded, match="would be 2, and 1 is"):
        quotas.take("ada", {Quota.LIVE_ADAPTERS: 1}, 0)
    quotas.set_limits("ada", QuotaLimits(), 0)
    quotas.take("ada", {Quota.LIVE_ADAPTERS: 9, Quota.TOKENS_PER_MINUTE: 10**9}, 0)


def test_a_limit_of_none_at_all_is_not_waited_for() -> None:
    quotas = Quotas(QuotaLimits(tokens_per_minute=0))
    with pytest.raises(QuotaExceeded) as error:
        quotas.take("ada", {Quota.TOKENS_PER_MINUTE: 1}, 0)
    assert error.value.retry_after_s is None
    assert TokenBucket(0, 0).wait_s(1, 100) == math.inf


def test_limits_are_strict() -> None:
    with pytest.raises(msgspec.ValidationError, match="live_adapter"):
        msgspec.json.decode(b'{"live_adapter": 3}', type=QuotaLimits)
    with pytest.raises(ValueError, match="quota stored_bytes is -1"):
        QuotaLimits(stored_bytes=-1)
