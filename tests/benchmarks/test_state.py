"""The benchmark of the state manager runs, and says what it measured."""

import json
from pathlib import Path

import pytest
import torch

from benchmarks import state, state_model, state_moves
from benchmarks.common import write_json
from plait.models.tensor_names import tensor_shapes
from plait.models.tiny import tiny_config


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny_config("llama")
    generator = torch.Generator().manual_seed(0)
    weights = {name: torch.randn(shape, generator=generator) for name, shape in tensor_shapes(config).items()}
    monkeypatch.setattr(state, "base_model", lambda is_quick: ("tiny", config, weights))
    monkeypatch.setattr(state_moves, "use_new_memory", lambda: None)  # it is for the whole process
    row = {"case": "1 -> 2", "needed_bytes": 10, "duration_s": 1.0, "needed_gigabytes_per_s": 1e-8}
    slices = {**row, "system": "slices", "moved_bytes": 10, "moved_per_needed": 1.0}
    rebuilt = {**row, "system": "full tensors rebuilt", "moved_bytes": 20, "moved_per_needed": 2.0}
    monkeypatch.setattr(state.state_resharding, "rows", lambda is_quick: [slices, rebuilt])  # processes of many ranks


@pytest.mark.usefixtures("tiny")
def test_all_parts_have_rows_and_headlines(tmp_path: Path) -> None:
    rows, headlines = state.run(tmp_path, is_quick=True)
    assert {row["part"] for row in rows} == {"moves", "sharing", "switch", "resharding"}
    assert headlines["needed_bytes_over_moved"]["value"] == 1.0
    assert [row["route"] for row in rows if row["part"] == "moves"] == list(state_moves.ROUTES)
    assert not list(tmp_path.iterdir())
    assert headlines.keys() >= {"offload_to_host", "load_from_disk", "sharing", "switch_warm_frozen", "switch_cold_trained"}
    assert headlines["sharing"]["met"]
    assert state._table(rows).row_count == len(rows)
    write_json(tmp_path / "state.json", rows, headlines)
    assert json.loads((tmp_path / "state.json").read_text())["headline"].keys() == headlines.keys()


def test_adapters_of_different_seeds_have_no_tensor_in_common() -> None:
    first, second = (state_model.trained_adapter(tiny_config("llama"), seed) for seed in (0, 1))
    assert first.keys() == second.keys()
    assert not any(torch.equal(first[name], second[name]) for name in first)
