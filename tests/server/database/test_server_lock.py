"""A second server on the same folder or database is refused, and told who has it."""

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from plait.config.server import ServerSettings
from plait.server.database.engine import parse_url
from plait.server.server_lock import DatabaseLock, server_lock
from plait.types.errors import StateError

HOLD = """
import sys
from pathlib import Path
from plait.config.server import ServerSettings
from plait.server.server_lock import server_lock
with server_lock(ServerSettings(data_folder=Path(sys.argv[1]), database_url=sys.argv[2])):
    print("held", flush=True)
    sys.stdin.read()
"""
NUM_STARTS = 30
Hold = Callable[[ServerSettings], "subprocess.Popen[str]"]


@pytest.fixture
def hold(request: pytest.FixtureRequest) -> Hold:
    def start(settings: ServerSettings) -> "subprocess.Popen[str]":
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(settings.data_folder), settings.database_url],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

        def end() -> None:
            holder.kill()
            holder.communicate()

        request.addfinalizer(end)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        return holder

    return start


def settings_in(folder: Path, url: str = "") -> ServerSettings:
    folder.mkdir(exist_ok=True)
    return ServerSettings(data_folder=folder, database_url=url)


def check_refused(settings: ServerSettings, holder: "subprocess.Popen[str]") -> None:
    with pytest.raises(StateError, match=f"process {holder.pid}\\b"), server_lock(settings):
        pass


def check_free(settings: ServerSettings) -> None:
    """Once the holder was killed; PostgreSQL notices a moment later."""
    deadline_s = time.monotonic() + 120
    while True:
        try:
            with server_lock(settings):
                return
        except StateError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)


def test_a_folder_that_is_not_there_is_not_called_in_use(tmp_path: Path) -> None:
    settings = ServerSettings(data_folder=tmp_path, database_url=f"sqlite:///{tmp_path}/none/plait.db")
    with pytest.raises(StateError, match=f"there is no folder {tmp_path}/none"), server_lock(settings):
        pass


def test_a_data_folder_has_one_server(tmp_path: Path, hold: Hold) -> None:
    settings = settings_in(tmp_path / "data")
    holder = hold(settings)
    check_refused(settings, holder)
    holder.kill()
    holder.wait()
    check_free(settings)


def test_of_many_that_start_at_once_one_is_there_and_each_other_is_told_who(tmp_path: Path) -> None:
    """P62: thirty forked processes, let go together; when the first ends, so does its lock, and a next thirty do the same."""
    settings, context = settings_in(tmp_path / "data"), multiprocessing.get_context("fork")
    for _ in range(2):
        go, told, end = context.Barrier(NUM_STARTS), context.SimpleQueue(), context.Event()
        starts = [context.Process(target=start_once, args=(settings, go, told, end)) for _ in range(NUM_STARTS)]
        for start in starts:
            start.start()
        answers = dict(told.get() for _ in starts)
        end.set()
        for start in starts:
            start.join()
        (winner,) = (pid for pid, refusal in answers.items() if not refusal)
        assert len(answers) == NUM_STARTS
        refusals = [refusal for pid, refusal in answers.items() if pid != winner]
        assert all(f"in use by a server: process {winner}." in refusal for refusal in refusals)
        assert all(start.exitcode == 0 for start in starts)


def start_once(settings: ServerSettings, go: Any, told: Any, end: Any) -> None:
    """Tells its id and why it was refused; holds the lock until `end`."""
    go.wait()
    while True:
        try:
            with server_lock(settings):
                told.put((os.getpid(), ""))
                end.wait()
                return
        except StateError as error:
            if "another process" not in str(error):  # Else it came before who has the lock could write its name.
                told.put((os.getpid(), str(error)))
                return


def test_two_folders_may_not_share_an_sqlite_file(tmp_path: Path, hold: Hold) -> None:
    url = f"sqlite:///{tmp_path}/shared.db"
    holder = hold(settings_in(tmp_path / "one", url))
    check_refused(settings_in(tmp_path / "two", url), holder)
    check_free(settings_in(tmp_path / "two"))


def test_two_folders_may_not_share_a_postgresql_database(tmp_path: Path, hold: Hold, postgres_url: str) -> None:
    holder = hold(settings_in(tmp_path / "one", postgres_url))
    check_refused(settings_in(tmp_path / "two", postgres_url), holder)
    holder.kill()
    holder.wait()
    check_free(settings_in(tmp_path / "two", postgres_url))


def test_a_lock_that_was_cut_off_is_taken_again(postgres: str, postgres_url: str) -> None:
    lock = DatabaseLock(parse_url(postgres_url))
    assert lock.renew()
    cut_connections(postgres)
    assert not lock.renew()
    assert lock.renew()
    lock.release()


def test_a_server_that_comes_too_late_hears_of_it(postgres: str, postgres_url: str) -> None:
    late = DatabaseLock(parse_url(postgres_url))
    cut_connections(postgres)
    other = DatabaseLock(parse_url(postgres_url))
    assert not late.renew()
    with pytest.raises(StateError, match=f"in use by another server .*process {os.getpid()}"):
        late.renew()
    late.release()
    assert other.renew()
    other.release()


def cut_connections(postgres: str) -> None:
    """As a restart of PostgreSQL does."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name LIKE 'plait serve%'"
        )  # fmt: skip
