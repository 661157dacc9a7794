"""A real Mooncake master on loopback; whoever asks for one is skipped where the package or its libraries are missing."""

import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest


class Master:
    def __init__(self) -> None:
        for _ in range(5):  # Another process may take a port that was free a moment ago.
            self.port, self._metrics_port = free_port(), free_port()
            self.process = self.start()
            if self.process.poll() is None:
                break

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> subprocess.Popen[bytes]:
        """Also again, after a kill, at the same address."""
        spec = find_spec("mooncake")
        assert spec is not None
        program = Path(spec.submodule_search_locations[0]) / "mooncake_master"  # type: ignore[index]
        ports = [f"--rpc_port={self.port}", f"--metrics_port={self._metrics_port}"]
        hosts = ["--rpc_address=127.0.0.1", "--metrics_host=127.0.0.1"]
        self.process = subprocess.Popen([str(program), *hosts, *ports], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(self.port, self.process)
        return self.process

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """It keeps its connections and answers nobody."""
        self.process.send_signal(signal.SIGSTOP)


@contextmanager
def running_master() -> Iterator[Master]:
    pytest.importorskip("mooncake.store", reason="the extra mooncake or its libraries are not installed", exc_type=ImportError)
    master = Master()
    try:
        yield master
    finally:
        master.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    """Until it listens, or has ended."""
    for _ in range(2400):
        with socket.socket() as probe:
            if process.poll() is not None or probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("the master does not listen")
