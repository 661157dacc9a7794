from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from plait.models.machine_choice import remembered


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLAIT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_the_first_measurement_stands() -> None:
    assert remembered("a", lambda: True)
    assert remembered("a", lambda: False)
    assert not remembered("b", lambda: False)
    assert not remembered("b", lambda: True)


def test_all_that_measure_at_once_choose_alike() -> None:
    answers = [index % 2 == 0 for index in range(16)]
    with ThreadPoolExecutor(16) as pool:
        chosen = list(pool.map(lambda answer: remembered("a", lambda: answer), answers))
    assert len(set(chosen)) == 1
    assert remembered("a", lambda: not chosen[0]) == chosen[0]


def test_without_a_home_it_is_measured_each_time(home: Path) -> None:
    home.write_text("no folder")
    assert remembered("a", lambda: True)
    assert not remembered("a", lambda: False)
