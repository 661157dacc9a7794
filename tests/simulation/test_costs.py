"""Rooflines: a case by hand, and what must hold of any."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.simulation.catalogue import read_table
from plait.simulation.costs import Efficiency, RooflineCosts
from plait.simulation.hardware import accelerator
from plait.simulation.model_shapes import model_shape
from plait.types.errors import ConfigError

PERFECT = Efficiency(memory=1.0, arithmetic=1.0, training=1.0, transfer=1.0, layer_s=0.0, step_s=0.0, link_latency_s=0.0)
models, devices = st.sampled_from(sorted(read_table("models"))), st.sampled_from(sorted(read_table("accelerators")))


def test_decoding_one_row_reads_the_weights_once() -> None:
    costs = RooflineCosts(accelerator("H100"), model_shape("Qwen3-8B"), efficiency=PERFECT)
    assert costs.decode_step_s(1, 0) == pytest.approx(8.19e9 * 2 / 3.35e12)
    kv_bytes = 36 * 2048 * 2 * 100_000
    assert costs.decode_step_s(1, 100_000) == pytest.approx((8.19e9 * 2 + kv_bytes) / 3.35e12)


def test_many_rows_are_bound_by_arithmetic() -> None:
    costs = RooflineCosts(accelerator("H100"), model_shape("Qwen3-8B"), efficiency=PERFECT)
    assert costs.decode_step_s(1000, 0) == pytest.approx(2 * 8.19e9 * 1000 / 989e12)
    assert costs.train_s(1000) == pytest.approx(6 * 8.19e9 * 1000 / 989e12)


def test_an_adapter_is_trained_without_gradients_of_the_base_and_published_fast() -> None:
    full = RooflineCosts(accelerator("H100"), model_shape("Qwen3-8B"))
    lora = RooflineCosts(accelerator("H100"), model_shape("Qwen3-8B"), trained_share=0.01)
    assert lora.train_s(1000) == pytest.approx(full.train_s(1000) * 4.02 / 6)
    assert lora.publish_s() < full.publish_s() / 10


@pytest.mark.parametrize("name", ["Qwen3-30B-A3B", "Qwen3-235B-A22B", "Kimi-K2", "Moonlight-16B-A3B"])
def test_one_token_touches_the_active_parameters_and_many_touch_all(name: str) -> None:
    shape = model_shape(name)
    assert shape.touched_parameters(1) == pytest.approx(shape.active_parameters)
    assert shape.touched_parameters(10_000) == pytest.approx(shape.num_parameters)


@given(models, devices, st.integers(1, 8), st.integers(1, 300), st.integers(0, 10**6), st.integers(1, 5))
def test_costs_are_positive_and_grow(model: str, device: str, num_devices: int, rows: int, context: int, tokens: int) -> None:
    costs = RooflineCosts(accelerator(device), model_shape(model), num_devices)
    step = costs.decode_step_s(rows, context)
    assert 0 < step <= costs.decode_step_s(rows + 1, context)
    assert step <= costs.decode_step_s(rows, context + 1000)
    assert step <= costs.verify_step_s(rows, context, tokens)
    assert 0 < costs.prefill_s(rows) <= costs.prefill_s(rows + 1)
    assert costs.load_s(1e9, "host") < costs.load_s(1e9, "disk")


def test_unknown_names_are_told_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r'cluster\.accelerator = "H10" is not known') as failure:
        accelerator("H10", "cluster.accelerator")
    assert 'Did you mean "H100"' in str(failure.value)
