"""This process's connection to a Ray cluster, and the cluster itself where one is started here.

- One connection a process, shared by all who ask for it. One that the program made itself is used as it is, and left alone.
- What Ray would report about its use stays off, its own log lines too unless they are errors.
- A cluster that is started here ("local") keeps its files in a folder of its own, which ends with it; those of processes that were
  killed are removed when the next one starts.
"""

import fcntl
import logging
import os
import shutil
import signal
import socket
import tempfile
import threading
from pathlib import Path
from typing import Any

from plait.types.errors import ConfigError

LOCAL, AUTO = "local", "auto"
PREFIX = "plait-ray-"
STORE_BYTES = 100 * 2**20
"""Of the object store of a cluster that is started here. Only messages go through it."""
CONNECT_S = 10.0
MAX_PORT = 2**16 - 1
START = 'Start one with `ray start --head` on this machine, join one with `ray start --address=HOST:PORT`, or use "local".'
INSTALL = "Install it with: pip install 'plait[ray]'."

_lock = threading.Lock()
_num_users = 0
_is_ours = False
_folder: "LockedFolder | None" = None


def connect(address: str, num_cpus: int) -> None:
    """Blocks for seconds. `num_cpus`: at least so many of a cluster that is started here. Raises ConfigError."""
    global _num_users, _is_ours, _folder
    ray = import_ray()
    if address not in (LOCAL, AUTO):
        check_reachable(address)
    with _lock:
        if not ray.is_initialized():
            _folder = LockedFolder() if address == LOCAL else None
            try:
                _initialise(ray, address, num_cpus, _folder)
            except BaseException:
                if _folder is not None:
                    _folder.remove()
                raise
            _is_ours = True
        _num_users += 1


def disconnect() -> None:
    """Once for each `connect`. Blocks until a cluster that was started here has ended."""
    global _num_users, _is_ours
    with _lock:
        _num_users -= 1
        if _num_users or not _is_ours:
            return
        _is_ours = False
        import_ray().shutdown()
        if _folder is not None:
            _folder.remove()


def restore_sigterm() -> None:
    """After `connect` and `disconnect`, in the main thread; in another it has no effect.

    Ray takes SIGTERM over as it connects: the process would be aborted three seconds after one, in the midst of stopping in good
    order. As it disconnects Ray leaves the default, which ends the process. Python still knows the handler that was there.
    """
    handler = signal.getsignal(signal.SIGTERM)
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


def import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise ConfigError('workers.executor is "ray", and Ray is not installed.', INSTALL) from error
    return ray


def _initialise(ray: Any, address: str, num_cpus: int, folder: "LockedFolder | None") -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "namespace": "plait"}
    if folder is not None:
        quiet |= {"num_cpus": max(num_cpus, os.cpu_count() or 1), "include_dashboard": False, "object_store_memory": STORE_BYTES}
        quiet["_temp_dir"] = str(folder.path)
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(f'no Ray cluster is reached at workers.ray_address = "{address}": {error}', START) from error


def check_reachable(address: str) -> None:
    """Ray itself would try for minutes. Raises ConfigError."""
    if address.startswith("ray://"):
        raise ConfigError(
            f'workers.ray_address is "{address}", and Plait does not run through a Ray client.',
            'Start it on a node of the cluster, with "auto".',
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > MAX_PORT:
        raise ConfigError(f'workers.ray_address = "{address}" is neither "HOST:PORT" nor "auto" nor "local".', START)
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except OSError as error:
        raise ConfigError(f'no Ray cluster is reached at workers.ray_address = "{address}": {error}.', START) from error


class LockedFolder:
    """A new folder that nobody removes as long as this process lives."""

    def __init__(self) -> None:
        root = Path(tempfile.gettempdir())
        remove_leftovers(root)
        while not self._make(root):
            pass

    def _make(self, root: Path) -> bool:
        """False: it was taken for a leftover before it was locked."""
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
        try:
            self._descriptor = os.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        if not self.path.exists():
            os.close(self._descriptor)
            return False
        return True

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._descriptor)


def remove_leftovers(root: Path) -> None:
    """Remove the folders whose makers are gone."""
    for path in root.glob(f"{PREFIX}*"):
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError:  # Another user's, or removed meanwhile.
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            continue
        finally:
            os.close(descriptor)
