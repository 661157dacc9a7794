"""The first rank's side of a training group: it starts the others, tells them what it does itself, and ends when one of them does.

- The others are child processes of its own process group, so they end with it. They start while it loads the model.
- A rank that dies ends the group at once; one that hangs, when another has waited for it for the group's time limit. The
  controller then replaces the whole group.
"""

import itertools
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from plait.cluster.messages import Configure
from plait.cluster.ranks.follower_process import FollowerProcess
from plait.cluster.ranks.group import check_devices, join, listen
from plait.cluster.ranks.messages import Command, JoinGroup, to_rank
from plait.cluster.ranks.sharded_weights import ShardedWeights
from plait.cluster.ranks.shards import Shards
from plait.cluster.trained_weights import AdapterBase
from plait.models.decoder import Decoder
from plait.types.errors import PlaitError

BLAME_S = 1.0
"""After an error of a collective call: how long to look for a rank that has died of another one."""


class RankLeader:
    """Starts the other ranks; `join` waits for them."""

    def __init__(self, settings: Configure, device: str) -> None:
        check_devices(device, settings.train_ranks)
        self.keys = itertools.count()
        """Of policies."""
        self.shards: Shards
        self._settings, self._device = settings, device
        self._listening = listen()
        self._is_closing, self._ending = False, threading.Lock()
        self.followers: list[FollowerProcess] = []
        for rank in range(1, settings.train_ranks):
            self.followers.append(FollowerProcess(self._join(rank), partial(self._lost, rank)))

    def _join(self, rank: int) -> JoinGroup:
        settings = self._settings
        return JoinGroup(
            rank=rank, num_ranks=settings.train_ranks, port=self._listening.getsockname()[1], timeout_s=settings.rank_timeout_s,
            device=self._device, dtype=settings.dtype, threads=settings.threads, model_path=settings.model_path,
            micro_batch_tokens=settings.micro_batch_tokens, checkpoint_layers=settings.checkpoint_layers,
        )  # fmt: skip

    def join(self, base: Decoder) -> Callable[[AdapterBase], ShardedWeights]:
        """Wait for the others; gives what makes a policy's weights that are sharded over all ranks."""
        try:
            own = self._join(0)
            self.shards = Shards(own, join(own, self._listening), base)
        except Exception:
            self._end(traceback.format_exc())
        return partial(ShardedWeights, leader=self)

    def run(self, command: Command) -> Any:
        """On every rank; what it gave here. Raises what is a PlaitError; any other error ends this process."""
        frame = to_rank.encode(command)
        try:
            for follower in self.followers:
                follower.send(frame)
            return self.shards.run(command)
        except PlaitError:
            raise
        except BaseException:
            self._end(traceback.format_exc())

    def close(self) -> None:
        self._is_closing = True
        for follower in self.followers:
            follower.close()

    # ---- the end of the group

    def _lost(self, rank: int, how: str) -> None:
        if not self._is_closing:
            self._end(f"rank {rank} of {self._settings.train_ranks} has ended with {how}.")

    def _end(self, why: str) -> NoReturn:
        """End all ranks, this one too, with the first of the causes."""
        deadline_s = time.monotonic() + BLAME_S
        while "Traceback" in why and time.monotonic() < deadline_s:
            time.sleep(BLAME_S / 20)  # Another thread may know better.
        with self._ending:
            for follower in self.followers:
                follower.kill()
            print(f"The training group is over: {why}", file=sys.stderr, flush=True)
            os._exit(1)
