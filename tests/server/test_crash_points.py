"""P16: the service is killed with SIGKILL at every commit and every rename, in every call that leaves something durable.

What the next start must come to is what an undisturbed life comes to: each acknowledged call is known, each result that was told
is told again, nothing runs twice (versions, weights and moments are the same bits), no checkpoint that is listed is torn, and no
file is left that nothing lists.
"""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from plait.server.checkpoints import CheckpointStore
from plait.server.database.calls import add_call
from plait.server.database.checkpoints import add_checkpoint
from plait.server.database.database import Database
from plait.server.folders import DataFolders
from tests.server.database.rows import fill, make_call, make_checkpoint

pytestmark = pytest.mark.timeout(900)
NUM_PROCESSES = 2
LIMIT_S = 800.0
"""Half a minute where nothing else runs."""
OPTIM_STEPS = {f"s:train:0:call:{seq_id}" for seq_id in (3, 7, 11)}
Lives = dict[int, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Lives:
    """By point: the life that ends there and the one after it; the last point is past the end."""
    helpers = [_start(tmp_path_factory.mktemp("crash"), number + 1) for number in range(NUM_PROCESSES)]
    found: Lives = {}
    for helper in helpers:
        output, errors = helper.communicate(timeout=LIMIT_S)
        assert helper.returncode == 0, errors
        found |= {line["point"]: line["lives"] for line in map(json.loads, output.splitlines())}
    return found


def _start(folder: Path, first: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.server.crash", str(folder), str(first), str(NUM_PROCESSES)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def undisturbed(lives: Lives) -> dict[str, Any]:
    return lives[max(lives)][0]


@pytest.fixture(scope="module")
def broken(lives: Lives) -> Lives:
    return {point: pair for point, pair in sorted(lives.items()) if len(pair) > 1}


def test_every_point_was_tried(broken: Lives, undisturbed: dict[str, Any]) -> None:
    assert not undisturbed["killed"]
    assert "error" not in undisturbed, undisturbed
    assert set(range(1, 81)) <= set(broken)  # Not always as many more: works that arrive together share a commit.
    assert all(first["killed"] for first, _ in broken.values())


def test_every_next_life_comes_to_the_same(broken: Lives, undisturbed: dict[str, Any]) -> None:
    for point, (_, second) in broken.items():
        assert "error" not in second, (point, second["error"])
        assert second["summary"] == undisturbed["summary"], point


def test_results_that_were_told_stand(broken: Lives, undisturbed: dict[str, Any]) -> None:
    """A second life ends with an error if one is another. An optimizer step that was under way may lose its metrics."""
    for point, (first, second) in broken.items():
        differ = {name for name, digest in second["results"].items() if digest != undisturbed["results"][name]}
        assert not differ & set(first["results"]), point
        assert len(differ) <= 1, (point, differ)
        assert differ <= OPTIM_STEPS, (point, differ)


def test_only_what_the_database_knows_to_be_replaced_is_removed(tmp_path: Path) -> None:
    """Nothing of a save that is under way, of a copy, of a place that a row names, or of calls that this database never saw."""
    folders = DataFolders(tmp_path)

    def place(model_id: str, name: str) -> Path:
        folder = folders.checkpoint("ann", model_id, "weights", name)
        folder.mkdir(parents=True)
        return folder

    removed = [place("s:train:0", "state@3"), place("s:train:0", ".tmp-state@4")]
    kept = [place("s:train:0", name) for name in ("state@4", "state@5", "state@9", "copy@0a1b", "state@7")]
    kept.append(place("t:train:0", "state@3"))
    database = Database.open(f"sqlite:///{tmp_path}/plait.db")
    database.submit(fill).result(60)
    for seq_id, state in ((3, "done"), (4, "done"), (5, "pending"), (7, "done")):
        database.submit(add_call, make_call(seq_id, state=state)).result(60)
    elsewhere = "/moved/since/tenants/ann/models/s:train:0/weights"
    for name, seq_id in (("a", 4), ("b", 7)):
        database.submit(add_checkpoint, make_checkpoint(name, folder=f"{elsewhere}/state@{seq_id}")).result(60)
    asyncio.run(CheckpointStore(database).remove_orphans(folders))
    database.stop()
    assert [folder for folder in removed if folder.exists()] == []
    assert [folder for folder in kept if not folder.exists()] == []
