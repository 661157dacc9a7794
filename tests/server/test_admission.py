"""Who is let in, and what is given back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.operations.quotas import Quota, QuotaLimits, Quotas
from plait.server.admission import Admission, Admitted
from plait.server.errors import TooMany


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 5), st.integers(1, 50), st.integers(0, 50)), max_size=30))
def test_limits_hold_and_all_is_given_back_but_what_was_used(requests: list[tuple[str, int, int, int]]) -> None:
    quotas = Quotas(QuotaLimits(concurrent_samples=8))
    admission, inside, used = Admission(quotas, max_waiting=12), [], {"a": 0, "b": 0}
    for tenant, num_samples, max_tokens, used_tokens in requests:
        try:
            inside.append(admission.enter(tenant, num_samples, max_tokens))
        except TooMany:
            assert inside
            admitted: Admitted = inside.pop(0)
            admitted.used_tokens = min(used_tokens, admitted.max_tokens)
            used[admitted.tenant_id] += admitted.used_tokens
            admission.leave(admitted)
        assert admission.num_samples == sum(admitted.num_samples for admitted in inside) <= 12
        for name in "ab":
            assert quotas.used(name, Quota.CONCURRENT_SAMPLES) <= 8
    for admitted in inside:
        admission.leave(admitted)
    assert admission.num_samples == 0
    for name, tokens in used.items():
        assert quotas.used(name, Quota.CONCURRENT_SAMPLES) == 0
        assert quotas.used(name, Quota.TOKENS_PER_MINUTE) == tokens


def test_one_that_is_refused_takes_nothing() -> None:
    quotas = Quotas(QuotaLimits(concurrent_samples=2, tokens_per_minute=100))
    admission = Admission(quotas, max_waiting=10)
    admission.enter("a", 1, 100)
    with pytest.raises(TooMany) as caught:
        admission.enter("a", 1, 100)
    assert caught.value.retry_after_s is not None
    with pytest.raises(TooMany) as caught:
        admission.enter("a", 3, 1)
    assert caught.value.retry_after_s is None, "waiting does not help"
    assert admission.num_samples == 1
    assert quotas.used("a", Quota.TOKENS_PER_MINUTE) == 100
