"""Names that no two runs share."""

from plait.tasks.identity import ALONE, RunIdentity
from plait.types.policy import PolicyVersion


def test_a_run_alone_uses_its_tasks_names() -> None:
    assert (ALONE.key("sums"), ALONE.task("sums")) == ("sums", "sums")
    assert ALONE.policy("sums", 3) == PolicyVersion("local", "sums", 3)


def test_equal_tasks_of_two_runs_differ_everywhere() -> None:
    first, second = RunIdentity("ann", "run-1"), RunIdentity("ann", "run-2")
    assert first.key("sums") != second.key("sums")
    assert first.policy("sums", 3) != second.policy("sums", 3)
    assert first.task(first.key("sums")) == "sums"
    assert first.policy("sums", 3).tenant == "ann"
