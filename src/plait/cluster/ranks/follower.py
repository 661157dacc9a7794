"""The program of a rank but the first: `python -m plait.cluster.ranks.follower --link-fd N`, a child of the first one.

It does what it is told until the first rank is gone. What it does not survive ends the group: the first rank is ended too, even
one that is stopped, and the controller replaces it.
"""

import os
import signal
import sys
import traceback

import torch

from plait.cluster.ranks.group import join
from plait.cluster.ranks.messages import JoinGroup, to_rank
from plait.cluster.ranks.shards import Shards
from plait.transport import ParentLink
from plait.types.errors import PlaitError


def serve(link: ParentLink, shards: Shards) -> None:
    """Until the first rank is gone: EOFError."""
    while True:
        frame = link.receive()
        assert frame is not None
        command = to_rank.decode(frame)
        assert not isinstance(command, JoinGroup)
        try:
            shards.run(command)
        except PlaitError:
            continue  # On the first rank too, which tells it.


def main() -> None:
    parent = os.getppid()
    link = ParentLink.from_arguments()
    frame = link.receive()
    assert frame is not None
    settings = to_rank.decode(frame)
    assert isinstance(settings, JoinGroup)
    try:
        torch.set_num_threads(settings.threads)
        serve(link, Shards(settings, join(settings)))
    except EOFError:
        os._exit(0)
    except BaseException:
        print(f"rank {settings.rank} failed:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        if os.getppid() == parent:
            os.kill(parent, signal.SIGKILL)
        os._exit(1)


if __name__ == "__main__":
    main()
