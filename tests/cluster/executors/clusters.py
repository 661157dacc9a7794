"""A real Ray cluster of several nodes on this machine, small and quiet, whose files lie in a folder of its own."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

STORE_BYTES = 80 * 2**20


class Nodes:
    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        few: dict[str, Any] = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
        head: dict[str, Any] = {"num_cpus": 1, "object_store_memory": STORE_BYTES, **few}
        try:
            self._cluster = Cluster(initialize_head=True, head_node_args=head)
        except Exception:  # Ray gives a node 30 s to start, which on a busy machine may not do.
            self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self._nodes: list[Any] = [self._cluster.head_node]

    @property
    def head(self) -> str:
        """The id of the node that controllers are connected to."""
        return str(self._nodes[0].node_id)

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def add(self, num_cpus: int = 1) -> str:
        """The id of the new node."""
        self._nodes.append(self._cluster.add_node(num_cpus=num_cpus, object_store_memory=STORE_BYTES))
        return str(self._nodes[-1].node_id)

    def remove(self, node: str) -> None:
        """With a kill, as when a machine goes away."""
        found = next(one for one in self._nodes if one.node_id == node)
        self._nodes.remove(found)
        self._cluster.remove_node(found, allow_graceful=False)

    def worker_pids(self) -> set[int]:
        """Of the processes of all actors."""
        raylets = [info.process.pid for node in self._nodes for info in node.all_processes["raylet"]]
        children = [child for pid in raylets for child in psutil.Process(pid).children()]
        return {child.pid for child in children if "WorkerActor" in " ".join(child.cmdline())}

    def close(self) -> None:
        import ray

        ray.shutdown()
        self._cluster.shutdown()


@contextmanager
def cluster(num_nodes: int) -> Iterator[Nodes]:
    with pytest.MonkeyPatch.context() as patch:
        folder = Path(tempfile.mkdtemp(prefix="pr-", dir="/tmp"))  # Paths of sockets must be short.
        (folder / "ray").mkdir()
        patch.setenv("RAY_TMPDIR", str(folder))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", os.pathsep.join(path or os.getcwd() for path in sys.path))
        nodes = Nodes()
        try:
            for _ in range(num_nodes - 1):
                nodes.add()
            yield nodes
        finally:
            nodes.close()
            shutil.rmtree(folder)
