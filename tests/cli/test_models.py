import json
from collections.abc import Callable
from pathlib import Path

import pytest

from plait.cli.main import main
from plait.models import catalogue


def plait(*arguments: str) -> object:
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    return caught.value.code


@pytest.fixture(autouse=True)
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIT_HOME", str(tmp_path))


def test_list_says_how_to_get_what_is_not_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert plait("models", "list") == 0
    text = capsys.readouterr().out
    assert "smollm2-135m-instruct" in text
    assert "plait models pull smollm2-135m-instruct" in text


def test_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert plait("models", "list", "--json") == 0
    entries = json.loads(capsys.readouterr().out)
    assert entries[0]["name"] == "smollm2-135m-instruct"
    assert entries[0]["path"] is None


def test_pull_shows_stages_and_prints_the_folder(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def pull(name: str, progress: Callable[[str], None]) -> Path:
        progress(f"downloading {name}")
        return Path("/models") / name

    monkeypatch.setattr(catalogue, "pull", pull)
    assert plait("models", "pull", "smollm2-135m-instruct") == 0
    captured = capsys.readouterr()
    assert captured.err == "downloading smollm2-135m-instruct\n"
    assert captured.out == "/models/smollm2-135m-instruct\n"
    assert plait("models", "pull", "smollm2-135m-instruct", "--json") == 0
    assert json.loads(capsys.readouterr().out)["path"] == "/models/smollm2-135m-instruct"


def test_misspelt_model_suggests_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert plait("models", "pull", "smolm2-135m") == 2
    assert "Did you mean 'smollm2-135m-instruct'?" in capsys.readouterr().err
