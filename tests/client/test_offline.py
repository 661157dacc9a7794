"""Nothing is fetched once a model is a local folder: a whole run in a network namespace that has no way out (P68)."""

import shutil
import subprocess
import sys
from pathlib import Path

from plait.config.load import effective_toml
from plait.state.rundir import RunDirectory
from tests.runs import committed_steps, tiny_settings, tiny_task

RUN = """
import socket, sys
from pathlib import Path
from plait.client.runs import run_file
from plait.config.load import load_settings
from plait.state.rundir import RunDirectory

if sys.argv[2] == "forbid":
    def refuse(*arguments):
        raise AssertionError(f"connection to {arguments[-1]}")
    socket.socket.connect = socket.getaddrinfo = refuse
directory = RunDirectory.open(Path(sys.argv[1]))
print(run_file(load_settings(directory.config), directory, show_progress=False))
"""


def test_a_run_needs_no_network(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, tiny_task("a", evaluation={"questions": 2}))
    directory = RunDirectory.create(tmp_path / "runs", "offline", effective_toml(settings))
    prefix, mode = (["unshare", "-n"], "isolated") if can_isolate() else ([], "forbid")
    result = subprocess.run(
        [*prefix, sys.executable, "-c", RUN, str(directory.path), mode], capture_output=True, text=True, timeout=240
    )
    assert result.stdout.split()[-1:] == ["done"], result.stderr
    assert [step.step for step in committed_steps(directory, "a")] == [1, 2, 3]


PROBE = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=2)"


def can_isolate() -> bool:
    """Whether this user may make a network namespace, and nothing leads out of it."""
    unshare = shutil.which("unshare")
    return (
        unshare is not None
        and b"unreachable" in subprocess.run([unshare, "-n", sys.executable, "-c", PROBE], capture_output=True).stderr
    )
