"""A group whose ranks do nothing, so that torch is not needed. Run as a program it starts one, tells the pids, and waits."""

import time
from unittest import mock

from plait.sharding import rank_group


def serve(*_: object) -> None:
    """In place of what a rank does."""
    rank_group.die_with_parent()
    time.sleep(600)


def main() -> None:
    with mock.patch.object(rank_group, "_serve", serve):
        group = rank_group.RankGroup(2, preloaded=())
    print(*(process.pid for process in group.processes), flush=True)
    time.sleep(600)


if __name__ == "__main__":
    from tests.sharding import sleepers

    sleepers.main()
