"""`python -m tests.server.crash FOLDER FIRST STRIDE`: dies at the points FIRST, FIRST + STRIDE, ... and plays on.

One line of JSON for each point. Each life is a child of its own, forked before there is any thread.
"""

import importlib
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.cluster.models import decoder
from tests.server.crash import script
from tests.server.crash.points import Points
from tests.server.crash.stand import run


def live(folder: Path, fatal: int, before: dict[str, Any] | None = None) -> dict[str, Any]:
    """One life of the service, after the one `before`, in a process of its own: what it told, and how it ended."""
    told, status = _forked(lambda tell: _play(folder, fatal, before or {}, tell))
    results = {line["result"]: line["digest"] for line in told if "result" in line}
    acknowledged = [line["acknowledged"] for line in told if "acknowledged" in line]
    last: dict[str, Any] = next((line for line in told if "summary" in line or "error" in line), {})
    return {"results": results, "acknowledged": acknowledged, "killed": os.WIFSIGNALED(status), **last}


def _play(folder: Path, fatal: int, before: dict[str, Any], tell: script.Tell) -> None:
    points = Points(fatal)
    points.install()

    async def work(stand: Any) -> None:
        await script.check_known(stand, before.get("acknowledged", []))
        await script.play(stand, tell, before.get("results", {}))
        await stand.background.close()
        tell({"summary": await script.summary(stand), "points": points.passed})

    run(folder, work)


def _forked(work: Callable[[script.Tell], None]) -> tuple[list[dict[str, Any]], int]:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        signal.alarm(240)
        try:
            work(lambda line: _write(writer, line))
        except BaseException:
            _write(writer, {"error": traceback.format_exc()})
        os._exit(0)
    os.close(writer)
    with open(reader) as lines:
        told = [json.loads(line) for line in lines]
    return told, os.waitpid(pid, 0)[1]


def _write(descriptor: int, line: dict[str, Any]) -> None:
    os.write(descriptor, json.dumps(line).encode() + b"\n")


def main(folder: Path, first: int, stride: int) -> None:
    """Until a life passes all points."""
    torch.set_num_threads(1)
    decoder()
    importlib.import_module("torch.fx.experimental.symbolic_shapes")  # Else each life would import it, in its first backward pass.
    template = folder / "template"
    template.mkdir()
    if failed := _forked(lambda tell: script.prepare(template))[0]:
        raise RuntimeError(failed[0]["error"])
    number, first_life = first, {"killed": True}
    while first_life["killed"]:
        data = folder / f"data{number}"
        shutil.copytree(template, data)
        first_life = live(data, number)
        lives = [first_life]
        if first_life["killed"]:
            lives.append(live(data, 0, first_life))
        print(json.dumps({"point": number, "lives": lives}), flush=True)
        shutil.rmtree(data)
        number += stride


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
