"""What becomes of ranks when somebody dies."""

import subprocess
import sys
import time
from unittest import mock

import pytest

from plait.sharding import rank_group
from plait.types.errors import WorkerFailure
from tests.sharding import sleepers
from tests.sharding.groups import rank_group as torch_rank_group


def test_ranks_die_with_their_parent_however_it_dies() -> None:
    parent = subprocess.Popen([sys.executable, "-m", "tests.sharding.sleepers"], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout as output:
        pids = [int(pid) for pid in output.readline().split()]
        assert len(pids) == 2
        assert all(is_alive(pid) for pid in pids)
        parent.kill()
        parent.wait()
    deadline_s = time.monotonic() + 120
    while any(is_alive(pid) for pid in pids) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert not any(is_alive(pid) for pid in pids)


def is_alive(pid: int) -> bool:
    """A process that has ended and that nobody has waited for is not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_group_that_has_lost_a_rank_is_over() -> None:
    with mock.patch.object(rank_group, "_serve", sleepers.serve):
        group = torch_rank_group(2)
    with group:
        group.processes[1].kill()
        with pytest.raises(WorkerFailure, match=r"rank 1 .* exit code -9"):
            group.run(is_alive, 1)
        assert not any(process.is_alive() for process in group.processes)
        with pytest.raises(WorkerFailure, match="rank 0"):
            group.run(is_alive, 1)


def test_what_a_rank_raises_names_it() -> None:
    with torch_rank_group(1) as group:
        with pytest.raises(WorkerFailure, match=r"rank 0: (?s:.*)ZeroDivisionError"):
            group.run(divmod, 1, 0)
        assert group.run(divmod, 7, 2) == [(3, 1)]
