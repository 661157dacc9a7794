"""`plait export` and `plait chat` around the client, which is replaced here."""

import io
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from plait.cli.main import main
from plait.state.rundir import RunDirectory
from plait.types.messages import Message


def plait(*arguments: str) -> object:
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    return caught.value.code


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    made: list[Any] = []

    def export_policy(directory: RunDirectory, task: str, *, step: int | None, merged: bool, to: Path) -> Path:
        made.append((directory.name, task, step, merged, to))
        return to

    def reply(messages: Sequence[Message], *, max_new_tokens: int, temperature: float) -> str:
        made.append([(message.role, message.content) for message in messages])
        return f"answer {len(made)}\x1b[2J"

    @contextmanager
    def open_policy(directory: RunDirectory, task: str, *, step: int | None) -> Iterator[Any]:
        yield SimpleNamespace(reply=reply)

    module = ModuleType("plait.client.policies")
    module.export_policy, module.open_policy = export_policy, open_policy  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "plait.client.policies", module)
    monkeypatch.chdir(tmp_path)
    RunDirectory.create(tmp_path / "runs", "demo", "")
    return made


def test_export(calls: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert plait("export", "demo", "add", "--to", "out", "--step", "3", "--merged", "--json") == 0
    assert calls == [("demo", "add", 3, True, Path("out"))]
    assert json.loads(capsys.readouterr().out)["path"] == "out"


def test_export_does_not_overwrite(calls: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    Path("full").mkdir()
    Path("full/file").write_text("")
    assert plait("export", "demo", "add", "--to", "full") == 2
    assert plait("export", "demo", "add") == 2
    assert plait("export", "absent", "add", "--to", "out") == 2
    assert "there is no run 'absent'" in capsys.readouterr().err
    assert calls == []


def test_piped_chat_answers_once(calls: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("1 + 1 = ?\n"))
    assert plait("chat", "demo", "add", "--system", "Be brief.") == 0
    assert calls == [[("system", "Be brief."), ("user", "1 + 1 = ?")]]
    assert "\x1b" not in capsys.readouterr().out


def test_chat_keeps_the_conversation(calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    lines = iter(["one", "two", "/new", "three", "/quit"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(lines))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    assert plait("chat", "demo", "add") == 0
    assert [len(messages) for messages in calls] == [1, 3, 1]
    assert calls[2] == [("user", "three")]
