"""Unnamed samplers that nobody uses go; what grows on the disk is counted."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from plait.server import storage
from plait.server.checkpoints import CheckpointStore
from plait.server.database.checkpoints import stored_bytes
from plait.server.database.database import Database
from plait.server.database.managed import add_run, set_run_state
from plait.server.database.samplers import add_sampler, get_sampler
from plait.server.database.tables import ManagedRun, Sampler
from tests.server.database.rows import fill

NUM = storage.KEPT_SNAPSHOTS + 3


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database.open(f"sqlite:///{tmp_path / 'plait.db'}")


def snapshot(folder: Path, number: int, version: int) -> Sampler:
    own = folder / f"snapshot{number}"
    own.mkdir()
    (own / "weights").write_bytes(b"x" * 10)
    return Sampler(
        sampler_id=f"s:sample:{number}", session_id="s", tenant_id="ann", base_model="base", created_s=float(number),
        policy_task="s:train:0", policy_version=version, folder=str(own), digest="d", size_bytes=10,
    )  # fmt: skip


def fill_samplers(session: Session, folder: Path) -> None:
    fill(session)
    for number in range(NUM):
        add_sampler(session, snapshot(folder, number, number))
    base = Sampler(sampler_id="s:sample:90", session_id="s", tenant_id="ann", base_model="base", created_s=0.0, policy_task="base")
    add_sampler(session, base)


def test_old_snapshots_go_unless_they_are_in_use(database: Database, tmp_path: Path) -> None:
    database.submit(fill_samplers, tmp_path).result()
    now_s, forgotten = time.monotonic(), list[str]()
    used = {"s:sample:1": now_s}
    store = storage.Storage(
        database, CheckpointStore(database), lambda name: used.get(name, now_s - storage.IDLE_S), forgotten.append
    )
    asyncio.run(store.tidy())
    asyncio.run(store.tidy())
    assert sorted(forgotten) == ["s:sample:0", "s:sample:2"]
    left = [n for n in range(NUM) if database.submit(get_sampler, f"s:sample:{n}", "ann").result() is not None]
    assert left == [n for n in range(NUM) if n not in (0, 2)]
    assert left == [n for n in range(NUM) if (tmp_path / f"snapshot{n}").exists()]
    assert database.submit(get_sampler, "s:sample:90", "ann").result() is not None
    database.stop()


def test_snapshots_of_one_version_share_their_bytes(database: Database, tmp_path: Path) -> None:
    def prepare(session: Session) -> None:
        fill(session)
        for number, version in enumerate((1, 1, 2)):
            add_sampler(session, snapshot(tmp_path, number, version))

    database.submit(prepare).result()
    assert database.submit(stored_bytes, "ann").result() == 20
    assert database.submit(stored_bytes, "ben").result() == 0
    database.stop()


def test_runs_are_measured_while_they_go_on_and_when_they_have_ended(database: Database, tmp_path: Path) -> None:
    folder = tmp_path / "run" / "deep"
    folder.mkdir(parents=True)

    def prepare(session: Session) -> None:
        fill(session)
        add_run(
            session, ManagedRun(run_id="r", tenant_id="ann", state="running", toml="", folder=str(tmp_path / "run"), created_s=1)
        )

    database.submit(prepare).result()
    store = storage.Storage(database, CheckpointStore(database), lambda name: 0.0, lambda name: None)
    for number, state in enumerate(("running", "running", "done")):
        (folder / f"file{number}").write_bytes(b"x" * 7)
        database.submit(set_run_state, "r", state, time.time() if state == "done" else None).result()
        asyncio.run(store.tidy())
        assert database.submit(stored_bytes, "ann").result() == 7 * (number + 1)
    database.stop()


def test_what_goes_while_it_is_measured_counts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder and a file, between the moment when they are listed and that when they are looked at."""
    for name in ("here", "gone"):
        (tmp_path / "run" / name).mkdir(parents=True)
        (tmp_path / "run" / name / "file").write_bytes(b"x" * 7)
    (tmp_path / "run" / "here" / "brief").write_bytes(b"x")
    real_scandir, real_lstat = os.scandir, os.lstat

    def scandir(path: Any) -> Any:
        if Path(path).name == "gone":
            os.rename(path, tmp_path / "elsewhere")
        return real_scandir(path)

    def lstat(path: Any, **more: Any) -> os.stat_result:
        if Path(path).name == "brief":
            os.unlink(path)
        return real_lstat(path, **more)

    monkeypatch.setattr(os, "lstat", lstat)
    monkeypatch.setattr(os, "scandir", scandir)
    assert storage.folder_bytes(tmp_path / "run") == 7
