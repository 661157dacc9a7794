"""The quick recipes, unmodified, against a real server."""

from pathlib import Path

import pytest
from rich.console import Console

from cookbook.run import choose, run_all


@pytest.mark.timeout(1800)
def test_the_quick_recipes_do_what_is_expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cookbook.served.NICENESS", 0)  # Others of the suite would make it wait for minutes.
    results = run_all(choose([], is_quick=True), tmp_path, Console())
    assert {result.name: result.problems for result in results if not result.passed} == {}
    assert all(result.num_steps for result in results)
