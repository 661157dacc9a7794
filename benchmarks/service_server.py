"""A `plait serve` process on a model of about 3 million parameters, tenants for it, and what memory it takes."""

import json
import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from plait.models.tiny import DEFAULT_VOCAB_SIZE, make_tiny_model
from plait.server.database.database import Database
from plait.server.serve import create_key

VOCAB_SIZE = DEFAULT_VOCAB_SIZE
MODEL_SHAPE: dict[str, Any] = {
    "hidden_size": 256, "intermediate_size": 768, "num_layers": 4, "num_heads": 8, "num_kv_heads": 4, "head_dim": 32,
}  # fmt: skip
SETTINGS: dict[str, Any] = {"MODEL__DTYPE": "float32", "MODEL__DEVICE": "cpu", "PORT": 0}
STOP_S = 30.0
RSS_TICK_S = 0.1


def make_model(folder: Path) -> Path:
    """Its configuration also tells the dtype of the weights, which SkyRL asks for."""
    config = make_tiny_model(folder, "llama", **MODEL_SHAPE) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"torch_dtype": "float32"}), encoding="utf-8")
    return folder


class PlaitServer:
    def __init__(self, folder: Path, model: Path, settings: Mapping[str, Any] | None = None) -> None:
        self._data = folder / "data"
        self.model = str(model)
        values = SETTINGS | {"MODEL__PATH": model, "DATA_FOLDER": self._data} | dict(settings or {})
        environment = os.environ | {f"PLAIT_SERVER__{name}": str(value) for name, value in values.items()}
        self._log = (folder / "server.log").open("w+", encoding="utf-8")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "plait.cli.main", "serve", "--json"],
            env=environment, stdout=subprocess.PIPE, stderr=self._log, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server did not start:\n{self.tail()}")
        self.url: str = json.loads(line)["url"]

    def tail(self) -> str:
        self._log.seek(0)
        return self._log.read()[-3000:]

    def key_of(self, tenant: str) -> str:
        database = Database.open(f"sqlite:///{self._data / 'plait.db'}")
        try:
            return create_key(database, tenant, "member", "benchmark")
        finally:
            database.stop()

    def rss_bytes(self) -> int:
        """Of the server and its workers."""
        server = psutil.Process(self._process.pid)
        return sum(_rss_bytes(process) for process in (server, *server.children(recursive=True)))

    def most_slices_waited(self) -> float:
        """Since the start, of all calls: how many slices of other tenants ran while one waited for its own, by /metrics."""
        with urllib.request.urlopen(f"{self.url}/metrics") as page:
            buckets = re.findall(r'plait_call_wait_slices_bucket\{le="([^"]+)"\} (\S+)', page.read().decode())
        total = max(float(count) for _, count in buckets)
        return min(float(bound) for bound, count in buckets if float(count) == total)

    def close(self) -> None:
        workers = psutil.Process(self._process.pid).children(recursive=True) if self._process.poll() is None else []
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for worker in psutil.wait_procs(workers, timeout=STOP_S)[1]:
            worker.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()


def _rss_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


@contextmanager
def peak_of(measure: Callable[[], int]) -> Iterator[list[int]]:
    """The largest value so far, as the only item of a list."""
    peak, is_over = [measure()], threading.Event()

    def watch() -> None:
        while not is_over.wait(RSS_TICK_S):
            peak[0] = max(peak[0], measure())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        is_over.set()
        watcher.join()
