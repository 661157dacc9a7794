"""A `plait serve` for the recipes: one process with its data in a folder, gone at the end."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from plait.types.errors import PlaitError

POLICY_NAME = "Qwen/Qwen3-8B"
ANSWERER_NAME = "Qwen/Qwen3.5-9B"
"""Of twenty_questions, which takes no other."""
STOP_S = 30.0
NICENESS = 19
"""Of the server and the recipes, for a machine that is in use."""


@dataclass(frozen=True, slots=True)
class Server:
    url: str
    key: str


@contextlib.contextmanager
def serving(model: Path | str, folder: Path, settings: Mapping[str, object] | None = None) -> Iterator[Server]:
    """Serve `model` under the names that the recipes use. `settings`: further ones, such as `{"ENGINE__MAX_ROWS": 16}`.

    `folder` is emptied first: only a server's first start tells a key.
    Raises PlaitError with the end of the log if the server does not start.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log_path = folder / "server.log"
    with log_path.open("w") as log:
        process = subprocess.Popen(
            [*gently(), sys.executable, "-m", "plait.cli.main", "serve", "--json"],
            env=_environment(model, folder, settings or {}), stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
    try:
        yield _wait_until_up(process, log_path)
    finally:
        _stop(process)


def gently() -> list[str]:
    return ["nice", "-n", str(NICENESS)]


def end_on_sigterm() -> None:
    """In order, so that the server and the recipe end as well."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def _environment(model: Path | str, folder: Path, settings: Mapping[str, object]) -> dict[str, str]:
    given = {
        "MODEL__PATH": model,
        "ALIASES": json.dumps([POLICY_NAME, ANSWERER_NAME]),
        "DATA_FOLDER": folder / "data",
        "PORT": 0,
        "MODEL__DTYPE": "float32",
        "MODEL__MAX_CONTEXT_TOKENS": 2048,
        **settings,
    }
    return {**os.environ, "OMP_NUM_THREADS": "1", **{f"PLAIT_SERVER__{key}": str(value) for key, value in given.items()}}


def _wait_until_up(process: subprocess.Popen[str], log_path: Path) -> Server:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise PlaitError("`plait serve` did not start:\n" + tail(log_path), "See the message above.")
    told = json.loads(line)
    return Server(told["url"], told["new_key"])


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def tail(path: Path, num_lines: int = 30) -> str:
    return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-num_lines:]) if path.exists() else ""
