"""What a task can begin from, what shape it has then, and what is said where that does not fit."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from plait.client.start_points import create_run, find_start, with_shapes
from plait.config.load import load_settings, make_settings, with_name
from plait.config.run import RunSettings
from plait.lora.peft_format import export_adapter
from plait.state.rundir import RunDirectory, list_runs
from plait.state.start_point import read_start
from plait.types.errors import ConfigError, PlaitError
from plait.types.lora import LoraConfig

LORA = LoraConfig(rank=4, alpha=12.0, target_modules=("q_proj", "up_proj"))


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    folder = tmp_path / "adapter"
    export_adapter(folder, LORA, {"layers.0.q_proj.A": torch.ones(4, 8), "layers.0.q_proj.B": torch.ones(8, 4)})
    return folder


def settings(folder: Path, **keys: Any) -> RunSettings:
    task = {"name": "a", "environment": {"kind": "calculator"}, "start_from": "adapter", **keys}
    return make_settings({"name": "next", "tasks": [task]}, folder)


def problem(folder: Path, **keys: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        with_shapes(settings(folder, **keys))
    return str(caught.value)


def test_what_a_task_does_not_set_is_the_adapters(adapter: Path) -> None:
    lora = with_shapes(settings(adapter.parent)).tasks[0].lora
    assert (lora.rank, lora.alpha, lora.target_modules) == (4, 12.0, ("q_proj", "up_proj"))
    lora = with_shapes(settings(adapter.parent, lora={"rank": 4, "target_modules": ["up_proj", "q_proj"]})).tasks[0].lora
    assert (lora.rank, lora.alpha) == (4, 12.0)


def test_another_shape_is_refused_and_names_both(adapter: Path) -> None:
    told = problem(adapter.parent, lora={"rank": 8, "alpha": 16.0, "target_modules": ["q_proj"]})
    assert 'tasks[0] (name "a").lora.rank = 8, and the adapter of start_from has 4: remove the key' in told
    assert "lora.alpha = 16.0, and the adapter of start_from has 12.0" in told
    assert "lora.target_modules = q_proj, and the adapter of start_from has q_proj, up_proj" in told


def test_keys_without_effect_are_refused(adapter: Path) -> None:
    assert "lora.seed = 3 has no effect" in problem(adapter.parent, lora={"seed": 3})
    assert 'training "full" begins from no adapter' in problem(adapter.parent, training="full")


def test_what_is_no_adapter_is_told(adapter: Path) -> None:
    folder = adapter.parent
    assert "there is no folder" in problem(folder, start_from="absent")
    assert "holds no adapter. Give a folder in PEFT format" in problem(folder, start_from=".")
    (adapter / "adapter_model.safetensors").unlink()
    assert "has no adapter_model.safetensors" in problem(folder)
    (adapter / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 4, "lora_alpha": 4, "target_modules": ["c_attn"]}')
    (adapter / "adapter_model.safetensors").touch()
    assert "target_modules is not trained here: 'c_attn'" in problem(folder)


def test_a_run_keeps_a_copy_and_its_file_names_it_from_wherever_it_lies(adapter: Path, tmp_path: Path) -> None:
    made, directory = create_run(with_shapes(settings(tmp_path)), tmp_path / "runs")
    assert made.tasks[0].start_from == str(directory.path / "tasks" / "a" / "start")
    assert load_settings(directory.config) == made
    assert with_name(made, "other").tasks == made.tasks
    start = read_start(directory.start_folder("a"))
    assert start.source == str(adapter)
    shutil.rmtree(adapter)
    moved = RunDirectory(Path(shutil.move(directory.path, tmp_path / "elsewhere")))
    assert load_settings(moved.config).tasks[0].start_from == str(tmp_path / "elsewhere" / "tasks" / "a" / "start")


def test_where_no_copy_can_be_made_there_is_no_run(adapter: Path, tmp_path: Path) -> None:
    shaped = with_shapes(settings(tmp_path))
    (adapter / "adapter_model.safetensors").write_bytes(b"torn")
    with pytest.raises(PlaitError, match="is damaged"):
        create_run(shaped, tmp_path / "runs")
    assert list_runs(tmp_path / "runs") == []


def test_a_run_with_several_tasks_asks_which(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, "many", "")
    for task in ("a", "b"):
        directory.steps_folder(task).mkdir(parents=True)
    with pytest.raises(PlaitError, match=r"has tasks a, b\. Name one: RUN/tasks/TASK"):
        find_start(directory.path)
    with pytest.raises(PlaitError, match="has no trained task 'a'"):
        find_start(directory.tasks_folder / "a")
