"""Training workers of several ranks: where there can be none, and where they would have nothing to do."""

from pathlib import Path
from typing import Any

import pytest

from plait.config.checks import check_settings
from plait.config.load_server import load_server_settings
from plait.config.run import RunSettings
from plait.types.errors import ConfigError
from tests.runs import full_task, tiny_task


def settings(*tasks: dict[str, Any], **workers: Any) -> RunSettings:
    model = {"path": "m", "max_context_tokens": 128}
    return RunSettings.model_validate({"model": model, "workers": {"train_ranks": 2, **workers}, "tasks": tasks})


def test_they_shard_full_tasks_and_leave_adapters_to_the_first() -> None:
    mixed = settings(tiny_task("a"), full_task("f"))
    assert (check_settings(mixed), mixed.train_ranks) == ([], 2)


PROCESSES = "workers.train_ranks = 2 needs processes of "


@pytest.mark.parametrize(
    ("task", "workers", "problem"),
    [
        (tiny_task("a"), {}, "workers.train_ranks = 2 shards tasks that train all weights, and there is none: remove it"),
        (full_task("f"), {"layout": "shared"}, f'{PROCESSES}their own: choose workers.layout = "split"'),
        (full_task("f"), {"executor": "thread"}, f'{PROCESSES}its own: choose workers.executor = "process"'),
    ],
)
def test_elsewhere_they_are_refused(task: dict[str, Any], workers: dict[str, Any], problem: str) -> None:
    (found,) = check_settings(settings(task, **workers))
    assert found.startswith(problem)


def test_those_of_one_base_model_need_a_full_task_on_it() -> None:
    own = {"name": "b", "path": "m", "workers": {"train_ranks": 3}}
    tasks = [full_task("f"), tiny_task("a", model="b")]
    (found,) = check_settings(RunSettings.model_validate({"models": [own], "tasks": tasks}))
    assert found.startswith('models[0] (name "b").workers.train_ranks = 3 shards')


def test_a_server_that_serves_no_full_models_has_no_use_for_them(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text(f'model.path = "{tmp_path}"\nworkers.train_ranks = 2\nfull.max_resident = 0\n')
    with pytest.raises(ConfigError, match=r"workers.train_ranks = 2 .* full.max_resident = 0 serves none"):
        load_server_settings(file, {})
