"""A real `plait serve` process on a tiny model, and the SDK's clients of it."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psutil
import tinker

from plait.models.tiny import make_tiny_model
from plait.server.database.database import Database
from plait.server.serve import create_key

ALIAS = "Qwen/Qwen3-8B"
START_S = 400.0
HANGS_S = 120.0
"""Nothing takes so long that does not hang."""
SETTINGS: dict[str, Any] = {
    "ALIASES": f'["{ALIAS}"]',
    "MODEL__DTYPE": "float32",
    "MODEL__DEVICE": "cpu",
    "MODEL__MAX_CONTEXT_TOKENS": 256,
    "ENGINE__MAX_ROWS": 16,
    "ENGINE__SLOT_TOKENS": 4096,
    "ENGINE__POOL_TOKENS": 4096,
    "ENGINE__CHUNK_TOKENS": 16,
    "LORA__MAX_RESIDENT": 8,
    "QUOTAS__LIVE_ADAPTERS": 64,
    "WORKERS__MAX_RESTARTS": 1000,
}


class Tenant(NamedTuple):
    tenant_id: str
    key: str


class ServerProcess:
    """`stop` and `start` again (also after `kill`) serve the same data at the same address."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.model = folder / "model"
        if not self.model.exists():
            make_tiny_model(self.model)
        values = SETTINGS | {"MODEL__PATH": self.model, "DATA_FOLDER": folder / "data", "PORT": 0} | settings
        self._settings = {f"PLAIT_SERVER__{name}": str(value) for name, value in values.items()}
        self.log = folder / "server.log"
        self.url = ""
        self.models: tuple[str, ...] = ()
        self.admin = Tenant("local", "")
        self._process: subprocess.Popen[str] | None = None
        self._num_tenants = 0
        self.closers: list[Callable[[], Any]] = []
        """Called after each test."""

    def start(self) -> "ServerProcess":
        for _ in range(4):
            try:
                return self._start()
            except RuntimeError as error:
                if not self.url or "cannot listen on" not in str(error):
                    raise
                time.sleep(2.0)  # Somebody got the address while nobody listened.
        return self._start()

    def _start(self) -> "ServerProcess":
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **self._settings}
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "plait.cli.main", "serve", "--json"],
                env=environment, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
            )  # fmt: skip
        told = json.loads(self._first_line())
        self.url, self.models = told["url"], tuple(told["models"])
        self._settings["PLAIT_SERVER__PORT"] = self.url.rpartition(":")[2]
        if told["new_key"]:
            self.admin = Tenant("local", told["new_key"])
        return self

    def _first_line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=lambda out: lines.put(out.readline()), args=(self._process.stdout,), daemon=True).start()
        try:
            line = lines.get(timeout=START_S)
        except queue.Empty:
            line = ""
        if not line.strip():
            self.kill()
            raise RuntimeError(f"the server did not start:\n{self.tail()}")
        return line

    def tail(self, num_lines: int = 80) -> str:
        return "\n".join(self.log.read_text().splitlines()[-num_lines:]) if self.log.exists() else ""

    # ---- ends of processes

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def workers(self) -> tuple[psutil.Process, psutil.Process]:
        """(rollout, training), once a model has been opened: only the training worker holds a lock in the data folder."""
        deadline_s = time.monotonic() + HANGS_S
        while True:
            found = self._find_workers()
            if sorted(found.values()) == [False, True]:
                return min(found, key=lambda child: found[child]), max(found, key=lambda child: found[child])
            assert time.monotonic() < deadline_s, f"workers, and which train: {found}"
            time.sleep(0.1)

    def _find_workers(self) -> dict[psutil.Process, bool]:
        """Those that are there, and whether each trains; none while one comes or goes."""
        try:
            children = [child for child in psutil.Process(self.pid).children() if "plait.cluster.worker" in child.cmdline()]
            return {child: any(str(self.folder / "data") in file.path for file in child.open_files()) for child in children}
        except psutil.Error:
            return {}

    def kill(self) -> None:
        """As kill -9 does; its workers end when they find it gone."""
        if self._process is not None:
            children = psutil.Process(self._process.pid).children(recursive=True) if self.is_running else []
            self._process.kill()
            self._process.wait()
            psutil.wait_procs(children, timeout=30)
            self._close_pipe()

    def stop(self) -> int:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(timeout=HANGS_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        self._close_pipe()
        return code

    def _close_pipe(self) -> None:
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()

    def restart(self) -> "ServerProcess":
        self.kill()
        return self.start()

    # ---- who uses it

    def tenant(self, tenant_id: str = "", role: str = "member", strict: bool = False) -> Tenant:
        """A key of a new tenant, or of the one that is named."""
        self._num_tenants += 1
        name = tenant_id or f"tenant{self._num_tenants}"
        database = Database.open(f"sqlite:///{self.folder / 'data' / 'plait.db'}")
        try:
            return Tenant(name, create_key(database, name, role, "for a test", strict))
        finally:
            database.stop()

    def client_for(self, key: str = "", **options: Any) -> tinker.ServiceClient:
        """The SDK's, with a session of its own; the admin's unless a key is given."""
        client = tinker.ServiceClient(base_url=self.url, api_key=key or self.admin.key, **options)
        self.closers.append(lambda: self._close(client))
        return client

    def _close(self, client: tinker.ServiceClient) -> None:
        """Of a server that is gone only the client's own ends: `close` would go on asking it to finish the session for minutes."""
        if self.is_running:
            client.close("success").result(timeout=120)
        elif (holder := client._session_holder) is not None:
            holder.run_coroutine_threadsafe(client._close_holders()).result(timeout=120)

    def close_clients(self) -> None:
        """Their threads too, so that no heartbeat outlives a test."""
        closers, self.closers = self.closers, []
        for close in closers:
            with contextlib.suppress(Exception):  # Some tests break their server or session on purpose.
                close()

    def http(self, key: str | None = "", **options: Any) -> httpx.Client:
        """Bare HTTP under /api/v1; the admin's key unless another, or None, is given."""
        headers = {} if key is None else {"X-API-Key": key or self.admin.key}
        return httpx.Client(base_url=f"{self.url}/api/v1", headers=headers, timeout=HANGS_S, **options)


@contextlib.contextmanager
def running_server(folder: Path, **settings: Any) -> Iterator[ServerProcess]:
    """Started, and gone at the end."""
    server = ServerProcess(folder, **settings)
    try:
        yield server.start()
    finally:
        server.close_clients()
        server.kill()
