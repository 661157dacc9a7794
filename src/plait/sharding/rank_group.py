"""Processes with a `torch.distributed` group among them, which run functions all at once.

- They are forked from one server process that has loaded torch, so that a rank starts in milliseconds. It touches no device.
- A rank dies with the process that made the group, however that dies: it watches it.
- A group that has lost a rank is over: the others are ended.
"""

import multiprocessing
import os
import tempfile
import threading
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from plait.types.errors import WorkerFailure

PRELOADED = ("torch", "torch.distributed.checkpoint", "torch.distributed.fsdp", "torch._dynamo")
"""Modules that the server imports once for all groups; the last one FSDP would load in every rank."""
CLOSE_GRACE_S = 5.0
"""How long a rank may take to end by itself."""


class RankGroup:
    """`num_ranks` processes, which have called `init_process_group` when they run their first function."""

    def __init__(
        self, num_ranks: int, backend: str = "gloo", timeout_s: float = 600.0, preloaded: Sequence[str] = PRELOADED
    ) -> None:
        """`timeout_s` bounds a collective call between ranks. The first group of this process decides what is `preloaded`."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(preloaded))
        self._folder = tempfile.TemporaryDirectory(prefix="plait-ranks-")
        pairs = [context.Pipe() for _ in range(num_ranks)]
        self._links: list[Connection] = [ours for ours, _ in pairs]
        store = str(Path(self._folder.name) / "store")
        self.processes = [
            context.Process(target=_serve, args=(rank, num_ranks, backend, timeout_s, store, theirs), daemon=True)
            for rank, (_, theirs) in enumerate(pairs)
        ]
        for process, (_, theirs) in zip(self.processes, pairs, strict=True):
            process.start()
            theirs.close()

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Call a function of a module on every rank; what each returned, in their order.

        Raises WorkerFailure if a rank raised, with its traceback, or ended; in the latter case the group is over.
        """
        for rank, link in enumerate(self._links):
            try:
                link.send((function, arguments))
            except OSError as error:
                raise self._lost(rank) from error
        answers = self._answers()
        failures = [text for is_good, text in answers if not is_good]
        if failures:
            raise WorkerFailure("\n".join(failures))
        return [value for _, value in answers]

    def close(self) -> None:
        """End the ranks. May be called again."""
        for link in self._links:
            link.close()
        for process in self.processes:
            process.join(CLOSE_GRACE_S)
        self._kill()
        self._folder.cleanup()

    def __enter__(self) -> "RankGroup":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answers(self) -> list[tuple[bool, Any]]:
        answers: dict[int, tuple[bool, Any]] = {}
        while len(answers) < len(self._links):
            waiting = {link: rank for rank, link in enumerate(self._links) if rank not in answers}
            for link in wait(list(waiting)):
                assert isinstance(link, Connection)
                try:
                    answers[waiting[link]] = link.recv()
                except (EOFError, OSError) as error:
                    raise self._lost(waiting[link]) from error
        return [answers[rank] for rank in sorted(answers)]

    def _lost(self, rank: int) -> WorkerFailure:
        process = self.processes[rank]
        process.join(CLOSE_GRACE_S)
        self._kill()
        return WorkerFailure(
            f"rank {rank} (process {process.pid}) ended with exit code {process.exitcode}.", "Start the group anew."
        )

    def _kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()


def _serve(rank: int, num_ranks: int, backend: str, timeout_s: float, store: str, link: Connection) -> None:
    die_with_parent()
    import torch.distributed as dist

    shared = dist.FileStore(store, num_ranks)
    dist.init_process_group(backend, store=shared, rank=rank, world_size=num_ranks, timeout=timedelta(seconds=timeout_s))
    while True:
        try:
            function, arguments = link.recv()
        except EOFError:
            os._exit(0)
        try:
            link.send((True, function(*arguments)))
        except Exception:
            link.send((False, f"rank {rank}: {traceback.format_exc()}"))


def die_with_parent() -> None:
    """Called in a process of `multiprocessing`: ends it at once when the process that started it is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    sentinel = parent.sentinel

    def watch() -> None:
        wait([sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
