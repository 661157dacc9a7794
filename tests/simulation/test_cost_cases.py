"""Rooflines by hand, with every term: several devices, experts, drafts, latencies, and what moves."""

import msgspec
import pytest

from plait.simulation.costs import Efficiency, RooflineCosts
from plait.simulation.hardware import accelerator
from plait.simulation.model_shapes import model_shape

H100 = accelerator("H100")
SHARES = Efficiency(memory=0.5, arithmetic=0.25, training=0.2, transfer=0.4, layer_s=1e-5, step_s=1e-3, link_latency_s=2e-6)
DENSE, EXPERTS = model_shape("Qwen3-8B"), model_shape("Qwen3-30B-A3B")
BYTES_PER_S, FLOPS, LINK = 0.5 * 3.35e12, 0.25 * 989e12, 0.4 * 450e9


def reduce_s(num_tokens: float, num_layers: int, hidden_size: int) -> float:
    """Two all-reduces a layer; each device sends its activations about twice."""
    return 2 * num_layers * (2 * num_tokens * hidden_size * 2 / LINK + 2e-6)


def test_a_decode_step_over_four_devices() -> None:
    costs = RooflineCosts(H100, DENSE, 4, efficiency=SHARES)
    weights_s = 8.19e9 * 2 / (4 * BYTES_PER_S)
    cache_s = 50_000 * 36 * 2048 * 2 / (4 * BYTES_PER_S)
    expected_s = weights_s + cache_s + 36 * 1e-5 + reduce_s(16, 36, 4096) + 1e-3
    assert costs.decode_step_s(16, 50_000) == pytest.approx(expected_s)
    assert costs.decode_step_s(0, 0) == 0.0


def test_a_prompt_is_bound_by_arithmetic_and_half_of_its_attention_is_masked() -> None:
    costs = RooflineCosts(H100, DENSE, 4, efficiency=SHARES)
    products_s = 2 * 8.19e9 * 8192 / (4 * FLOPS)
    attention_s = 4 * 4096 * 36 * 8192 * 8192 / 2 / (4 * FLOPS)
    assert costs.prefill_s(8192) == pytest.approx(products_s + attention_s + 36 * 1e-5 + reduce_s(8192, 36, 4096))
    assert costs.prefill_s(0) == 0.0


def test_drafts_are_fed_with_their_tokens_and_attend_to_the_whole_context() -> None:
    """Of 200 rows of 8 tokens the products are bound by arithmetic, and with wider queries attention is too."""
    costs = RooflineCosts(H100, DENSE, efficiency=SHARES)
    products_s, attention_s = 2 * 8.19e9 * 1600 / FLOPS, 4 * 4096 * 36 * 400_000 * 8 / FLOPS
    cache_s = 400_000 * 36 * 2048 * 2 / BYTES_PER_S
    expected_s = products_s + max(attention_s, cache_s) + 36 * 1e-5 + 1e-3
    assert costs.verify_step_s(200, 400_000, 8) == pytest.approx(expected_s)
    wide = msgspec.structs.replace(DENSE, query_width=40 * DENSE.query_width)
    wide_s = RooflineCosts(H100, wide, efficiency=SHARES).verify_step_s(200, 400_000, 8)
    assert wide_s == pytest.approx(products_s + 40 * attention_s + 36 * 1e-5 + 1e-3)


def test_a_step_of_a_mixture_reads_the_experts_that_its_tokens_take_and_computes_with_the_active_ones() -> None:
    costs = RooflineCosts(H100, EXPERTS, efficiency=SHARES)
    experts = (30.5e9 - 3.3e9) / (1 - 8 / 128)
    read = 30.5e9 - experts * (120 / 128) ** 4
    assert costs.decode_step_s(4, 0) == pytest.approx(read * 2 / BYTES_PER_S + 48 * 1e-5 + 1e-3)
    many = RooflineCosts(H100, EXPERTS, efficiency=msgspec.structs.replace(SHARES, memory=1.0))
    assert many.decode_step_s(4000, 0) == pytest.approx(2 * 3.3e9 * 4000 / FLOPS + 48 * 1e-5 + 1e-3)


@pytest.mark.parametrize("share", [1.0, 0.01])
def test_what_an_update_takes(share: float) -> None:
    costs = RooflineCosts(H100, EXPERTS, 8, share, SHARES)
    assert costs.train_s(10_000) == pytest.approx((4 + 2 * share) * 3.3e9 * 10_000 / (8 * 0.2 * 989e12))
    assert costs.optimizer_s() == pytest.approx(7 * 4 * 30.5e9 * share / (8 * BYTES_PER_S))
    assert costs.publish_s() == pytest.approx(30.5e9 * 2 * share / (8 * 0.4 * 50e9) + 1e-3)


def test_what_moves() -> None:
    costs = RooflineCosts(H100, DENSE, 8, efficiency=SHARES)
    assert costs.load_s(80e9, "host") == costs.offload_s(80e9, "host") == pytest.approx(80e9 / (8 * 0.4 * 55e9))
    assert costs.load_s(80e9, "disk") == pytest.approx(80e9 / (8 * 0.4 * 3e9))
    assert costs.fetch_s(1000) == pytest.approx(1000 * 36 * 2048 * 2 / (8 * 0.4 * 50e9))


def test_latent_caches_are_as_small_as_their_papers_say() -> None:
    """Two bytes of 512 numbers and 64 of the rotary part, in each of 61 layers (DeepSeek-V3, arXiv 2412.19437)."""
    assert model_shape("Kimi-K2").kv_bytes_per_token == 61 * (512 + 64) * 2
    assert model_shape("Moonlight-16B-A3B").kv_bytes_per_token == 27 * (512 + 64) * 2
