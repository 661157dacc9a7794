"""`plait keys` on a database of its own, with no server."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from plait.cli.main import main
from plait.server.database import audit, tenants
from plait.server.database.database import Database
from plait.server.keys import matches


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLAIT_SERVER__DATA_FOLDER", str(tmp_path / "data"))
    return tmp_path / "data"


def plait(*arguments: str) -> object:
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    return caught.value.code


def answer_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert plait("keys", *arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_a_key_is_made_listed_and_revoked(data_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = answer_of(capsys, "create", "--tenant", "acme", "--label", "laptop", "--strict")
    assert (made["tenant_id"], made["role"], made["label"], made["strict"]) == ("acme", "member", "laptop", True)
    (listed,) = answer_of(capsys, "list")
    assert listed == {name: value for name, value in made.items() if name != "key"}
    revoked = answer_of(capsys, "revoke", made["key"])
    assert revoked["revoked_s"] > made["created_s"]
    assert answer_of(capsys, "revoke", made["key_id"]) == revoked
    database = Database.open(f"sqlite:///{data_folder}/plait.db")
    try:
        row = database.submit(tenants.get_key, made["key_id"]).result()
        assert row is not None
        assert matches(made["key"], row.secret_digest)
        entries, _ = database.submit(audit.list_entries, None, 0, 1e12, 10, 0).result()
        assert [entry.action for entry in entries] == ["key_create", "key_revoke"]
        assert {entry.key_id for entry in entries} == {"command line"}
    finally:
        database.stop()


def test_only_the_key_goes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert plait("keys", "create", "--role", "admin") == 0
    captured = capsys.readouterr()
    assert re.fullmatch(r"tml-[0-9a-f]{12}-[\w-]{43}\n", captured.out)
    assert "of tenant local, role admin" in captured.err
    assert plait("keys", "list") == 0
    assert captured.out.strip() not in capsys.readouterr().out


def test_lists_are_for_people_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert plait("keys", "list") == 0
    assert "plait keys create" in capsys.readouterr().out
    made = answer_of(capsys, "create", "--tenant", "acme", "--label", "lap top")
    answer_of(capsys, "create", "--tenant", "other")
    assert plait("keys", "list", "--tenant", "acme") == 0
    header, line = capsys.readouterr().out.splitlines()
    assert header.split() == ["key", "tenant", "role", "created", "revoked", "label"]
    assert line.startswith(made["key_id"])
    assert line.endswith("lap top")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("revoke", "nobody"), "no key 'nobody'"),
        (("create", "--role", "king"), "--role 'king'"),
        (("create", "--tenant", "a/b"), "--tenant 'a/b'"),
        (("list", "--settings", "missing.toml"), "cannot read missing.toml"),
        (("list", "--url", "http://127.0.0.1:1", "--key", "tml-a-b"), "no server answers"),
    ],
)
def test_errors_say_what_is_wrong(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert plait("keys", *arguments) == 2
    assert message in capsys.readouterr().err


def test_a_settings_file_names_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLAIT_SERVER__DATA_FOLDER")
    (tmp_path / "server.toml").write_text('data_folder = "elsewhere"')
    assert plait("keys", "create", "--settings", "server.toml") == 0
    assert (tmp_path / "elsewhere" / "plait.db").exists()
