"""The first rank's handle on another one."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable

from plait.cluster.ranks.messages import JoinGroup, to_rank
from plait.transport.child import PROGRAM, describe_exit
from plait.transport.frames import encode_frame

MODULE = "plait.cluster.ranks.follower"
EXIT_GRACE_S = 2.0
"""How long a rank whose link is closed may take to end."""


class FollowerProcess:
    """Its output goes where this process's goes. `on_ended` is told how it ended, in a thread of its own."""

    def __init__(self, settings: JoinGroup, on_ended: Callable[[str], None]) -> None:
        self._link, theirs = socket.socketpair()
        self._link.settimeout(settings.timeout_s)
        command = (sys.executable, "-P", "-m", PROGRAM, MODULE, "--link-fd", str(theirs.fileno()))
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        with theirs:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=variables, pass_fds=[theirs.fileno()])
        self._watcher = threading.Thread(target=self._watch, args=(on_ended,), name="rank-watcher", daemon=True)
        self._watcher.start()
        self.send(to_rank.encode(settings))

    def send(self, frame: bytes) -> None:
        """Raises OSError if it has ended, or does not read."""
        self._link.sendall(encode_frame(frame))

    def kill(self) -> None:
        self.process.kill()

    def close(self) -> None:
        """It ends as it sees that its link is closed."""
        self._link.close()
        self._watcher.join(EXIT_GRACE_S)
        self.process.kill()

    def _watch(self, on_ended: Callable[[str], None]) -> None:
        on_ended(describe_exit(self.process.wait()))
