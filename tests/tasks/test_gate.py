import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.tasks.gate import batch_policies, check_policies, mean_staleness
from plait.types.errors import PolicyError
from plait.types.policy import PolicyVersion
from plait.types.trajectory import Segment, Trajectory, TrajectoryBatch

LATEST = PolicyVersion("local", "sums", 7)
versions = st.integers(0, 15)
policies = st.builds(PolicyVersion, st.sampled_from(["local", "other"]), st.sampled_from(["sums", "words"]), versions)


def batch(*segments: Segment) -> TrajectoryBatch:
    return TrajectoryBatch("local", "sums", 8, (Trajectory("sums", "0", 0, 0, segments, 1.0, "stop_token"),))


def sampled(version: int, num_tokens: int = 1) -> Segment:
    return Segment((5,) * num_tokens, (-0.5,) * num_tokens, PolicyVersion("local", "sums", version))


@given(st.lists(policies, max_size=6), st.integers(0, 4), st.none() | versions)
def test_a_batch_passes_iff_each_of_its_stamps_would(
    stamps: list[PolicyVersion], max_staleness: int, committed: int | None
) -> None:
    newest = 7 if committed is None else min(7, committed)
    may_train = all(p.tenant == "local" and p.task == "sums" and 7 - max_staleness <= p.version <= newest for p in stamps)
    if may_train:
        check_policies(stamps, LATEST, max_staleness, committed)
    else:
        with pytest.raises(PolicyError):
            check_policies(stamps, LATEST, max_staleness, committed)


@given(st.lists(st.just(LATEST), max_size=20), policies.filter(lambda policy: policy != LATEST), st.integers(0, 20))
def test_strict_takes_nothing_but_the_latest_version_wherever_it_stands(
    stamps: list[PolicyVersion], other: PolicyVersion, place: int
) -> None:
    stamps.insert(min(place, len(stamps)), other)
    with pytest.raises(PolicyError):
        check_policies(stamps, LATEST, 0)


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (PolicyVersion("local", "sums", 4), "local/sums@4 cannot train local/sums@7: its age is 3, max_staleness is 2"),
        (PolicyVersion("local", "sums", 8), "local/sums@8 cannot train local/sums@7: version 7 is the newest"),
        (PolicyVersion("local", "words", 7), "local/words@7 is in a batch of local/sums"),
        (PolicyVersion("other", "sums", 7), "other/sums@7 is in a batch of local/sums"),
    ],
)
def test_the_error_names_stamp_and_rule(policy: PolicyVersion, text: str) -> None:
    with pytest.raises(PolicyError, match=text) as error:
        check_policies([policy], LATEST, 2)
    assert error.value.remedy


def test_the_policies_of_a_batch_are_those_of_its_sampled_segments() -> None:
    assert batch_policies(batch(Segment((1, 2)), sampled(7), Segment((3,)), sampled(6))) == [
        PolicyVersion("local", "sums", 7),
        PolicyVersion("local", "sums", 6),
    ]


def test_staleness_is_the_mean_over_sampled_tokens() -> None:
    assert mean_staleness(batch(Segment((1, 2)), sampled(7, 3), sampled(5, 1)), LATEST) == 0.5
    assert mean_staleness(batch(Segment((1, 2))), LATEST) == 0.0
