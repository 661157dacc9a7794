"""Whose costs a profile tells: another model's are refused, an unknown one's are told with the results."""

from pathlib import Path

import pytest

from plait.simulation.load_scenario import parse_scenario
from plait.simulation.measured_model import measured_model
from plait.simulation.simulate import simulate
from plait.types.errors import ConfigError
from tests.simulation.scenarios import TASKS
from tests.simulation.test_profile import profile

MEASURED = TASKS[: TASKS.index("[[systems]]")].replace("devices = 3", "devices = 2").replace(
    'name = "Qwen3-0.6B"', 'name = "Qwen3-0.6B"\nprofile = "p.json"'
)  # fmt: skip


@pytest.mark.parametrize(
    ("folder", "model"),
    [
        ("smollm2-135m-instruct", "SmolLM2-135M"),
        ("Qwen3-8B", "Qwen3-8B"),
        ("Qwen3-30B-A3B-Instruct-2507", "Qwen3-30B-A3B"),
        ("tiny", "tiny"),
        ("TinyLlama-1.1B", None),
        ("Qwen3-80B", None),
    ],
)
def test_a_folder_is_of_the_model_whose_words_it_begins_with(folder: str, model: str | None) -> None:
    assert measured_model(folder) == model


def test_costs_of_another_model_are_refused_with_both_names(tmp_path: Path) -> None:
    profile(model="smollm2-135m-instruct").write(tmp_path / "p.json")
    with pytest.raises(ConfigError) as failure:
        parse_scenario(MEASURED, "my.toml", tmp_path)
    told = str(failure.value)
    assert 'model.name = "Qwen3-0.6B"' in told
    assert 'was measured on "smollm2-135m-instruct"; give "SmolLM2-135M"' in told
    assert "(line 11)" in told


@pytest.mark.parametrize(("folder", "num_told"), [("my-own-model", 1), ("Qwen3-0.6B-Base", 0)])
def test_costs_of_a_model_that_nobody_knows_are_told_with_the_results(tmp_path: Path, folder: str, num_told: int) -> None:
    profile(model=folder).write(tmp_path / "p.json")
    found = simulate(parse_scenario(MEASURED, "my.toml", tmp_path), "mine")
    told = [text for text in found.assumptions if f'measured on "{folder}"' in text and "Qwen3-0.6B" in text]
    assert len(told) == num_told
