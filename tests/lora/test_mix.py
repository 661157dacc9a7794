"""Every form of mixing gives a row the bits it has alone, and gradients are those of plain products."""

import random

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from plait.lora.fused import FusedAdapter, module_output_sizes
from plait.lora.initial import pristine_adapter
from plait.lora.mix import SEGMENT_COST_ROWS, BatchedLora, SegmentLora, SingleLora, mix_adapters, taken_alone
from plait.lora.modules import module_shapes
from plait.lora.stack import StackedAdapters
from plait.models.decoder import SITE_MODULES, UNEMBED, LoraDelta
from plait.models.kernels import has_onednn
from plait.models.tiny import tiny_config
from plait.types.lora import LoraConfig

MODEL = msgspec.structs.replace(
    tiny_config(), hidden_size=320, intermediate_size=640, num_heads=4, num_kv_heads=2, head_dim=64, num_layers=2, vocab_size=512
)
MODULES = tuple(module_shapes(MODEL))
INPUTS = {site: module_shapes(MODEL)[modules[0]][1] for site, modules in SITE_MODULES.items()}
OUTPUTS = {site: sum(module_output_sizes(MODEL)[module] for module in modules) for site, modules in SITE_MODULES.items()}
needs_onednn = pytest.mark.skipif(not has_onednn(torch.bfloat16), reason="no oneDNN in bfloat16 here: nothing is promised")


def tensors(lora: LoraConfig) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(lora.seed)
    return {
        name: torch.randn(t.shape, generator=generator) * 0.1 if name.endswith(".B") else t
        for name, t in pristine_adapter(MODEL, lora).items()
    }


def adapter(lora: LoraConfig, dtype: torch.dtype = torch.float32) -> FusedAdapter:
    return FusedAdapter(lora, tensors(lora), MODEL, dtype)


def site_tensors(site: str, num_rows: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(num_rows)
    x, y = (torch.randn(num_rows, size, generator=generator).to(dtype) for size in (INPUTS[site], OUTPUTS[site]))
    return x, y


def plain_delta(lora: LoraConfig, site: str, x: Tensor) -> Tensor:
    """In double precision, module by module."""
    weights = {name: t.double() for name, t in tensors(lora).items()}
    parts = []
    for module in SITE_MODULES[site]:
        path = module if site == UNEMBED else f"layers.0.{module}"
        if module in lora.target_modules:
            parts.append(lora.scaling * (x.double() @ weights[f"{path}.A"].T @ weights[f"{path}.B"].T))
        else:
            parts.append(x.new_zeros(len(x), module_output_sizes(MODEL)[module], dtype=torch.float64))
    return torch.cat(parts, dim=1)


@st.composite
def loras(draw: st.DrawFn) -> list[LoraConfig]:
    count = draw(st.integers(1, 9))
    targets = st.lists(st.sampled_from(MODULES), min_size=1, unique=True).map(tuple)
    ranks = st.sampled_from([1, 3, 8, 16, 20, 64])
    return [LoraConfig(rank=draw(ranks), alpha=16.0, target_modules=draw(targets), seed=seed) for seed in range(count)]


@needs_onednn
@settings(max_examples=25)
@given(configs=loras(), dtype=st.sampled_from([torch.float32, torch.bfloat16]), rows=st.integers(1, 40), seed=st.integers(0, 99))
def test_all_forms_give_the_bits_of_the_adapter_alone(configs: list[LoraConfig], dtype: torch.dtype, rows: int, seed: int) -> None:
    torch.set_num_threads(1)
    adapters = [adapter(lora, dtype) for lora in configs]
    rng = random.Random(seed)
    owners = [rng.choice([*range(-1, len(adapters)), 0]) for _ in range(rows)]
    places = torch.tensor(owners)
    batched, segments = BatchedLora(StackedAdapters(adapters), places), SegmentLora(adapters, places)
    with torch.inference_mode():
        for site in SITE_MODULES:
            x, y = site_tensors(site, rows, dtype)
            expected = y.clone()
            for row, owner in enumerate(owners):
                if owner >= 0:
                    expected[row] = SingleLora(adapters[owner])(site, 0, x[row : row + 1], y[row : row + 1].clone())[0]
            assert torch.equal(batched(site, 0, x, y.clone()), expected)
            assert torch.equal(segments(site, 0, x, y.clone()), expected)


@needs_onednn
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows_each", [2, 8, 16, 17])
def test_rows_in_the_order_of_their_adapters(dtype: torch.dtype, rows_each: int) -> None:
    """They are not copied together; the bits are the same."""
    adapters = [adapter(LoraConfig(rank=8, alpha=8.0, target_modules=MODULES, seed=seed), dtype) for seed in range(3)]
    places = torch.arange(3).repeat_interleave(rows_each)
    mixed = BatchedLora(StackedAdapters(adapters), places)
    assert mixed.plans["qkv"].is_in_order == (rows_each <= 16)
    with torch.inference_mode():
        for site in SITE_MODULES:
            x, y = site_tensors(site, 3 * rows_each, dtype)
            assert torch.equal(mixed(site, 0, x, y.clone()), SegmentLora(adapters, places)(site, 0, x, y.clone()))


@needs_onednn
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_adapter_with_many_rows_is_taken_alone_with_the_same_bits(dtype: torch.dtype) -> None:
    configs = [LoraConfig(rank=8, alpha=8.0, target_modules=MODULES, seed=seed) for seed in range(3)]
    adapters = [adapter(lora, dtype) for lora in configs]
    places = torch.tensor([0] * 400 + [1, 2, -1])[torch.randperm(403, generator=torch.Generator().manual_seed(0))]
    mixed = BatchedLora(StackedAdapters(adapters), places)
    assert [len(places[rows]) for _, rows in mixed.segments.segments] == [400]
    x, y = site_tensors("gate_up", 403, dtype)
    with torch.inference_mode():
        found = mixed("gate_up", 1, x, y.clone())
        assert torch.equal(found, SegmentLora(adapters, places)("gate_up", 1, x, y.clone()))
        assert torch.equal(found[places == -1], y[places == -1])


@pytest.mark.parametrize("site", SITE_MODULES)
@pytest.mark.parametrize("targets", [MODULES, ("v_proj", "up_proj", "o_proj", "down_proj", "lm_head")])
def test_values_and_gradients_equal_plain_products(site: str, targets: tuple[str, ...]) -> None:
    lora = LoraConfig(rank=5, alpha=20.0, target_modules=targets)
    leaves = {name: t.requires_grad_() for name, t in tensors(lora).items()}
    fused = FusedAdapter(lora, leaves, MODEL, torch.float32)
    x, y = (t.requires_grad_() for t in site_tensors(site, 7))
    out = SingleLora(fused)(site, 0, x, y)
    torch.testing.assert_close(out.double(), y.double() + plain_delta(lora, site, x), atol=1e-4, rtol=1e-4)
    up = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    names = [name for name in leaves if name.startswith("lm_head" if site == UNEMBED else "layers.0.")]
    names = [name for name in names if name.split(".")[-2] in SITE_MODULES[site]]
    found = torch.autograd.grad(out, [x, y, *(leaves[name] for name in names)], up)
    doubles = {name: leaves[name].detach().double().requires_grad_() for name in names}
    x64, parts = x.detach().double().requires_grad_(), []
    for module in SITE_MODULES[site]:
        path = module if site == UNEMBED else f"layers.0.{module}"
        if module in targets:
            parts.append(lora.scaling * (x64 @ doubles[f"{path}.A"].T @ doubles[f"{path}.B"].T))
        else:
            parts.append(x64.new_zeros(7, module_output_sizes(MODEL)[module]))
    expected = torch.autograd.grad(torch.cat(parts, dim=1), [x64, *doubles.values()], up.double())
    torch.testing.assert_close(found[1], up)
    for ours, plain in zip((found[0], *found[2:]), expected, strict=True):
        torch.testing.assert_close(ours.double(), plain, atol=1e-4, rtol=1e-4)


def test_training_leaves_the_given_output_alone_and_inference_reuses_it() -> None:
    single = SingleLora(adapter(LoraConfig(rank=4, alpha=4.0, target_modules=("q_proj",))))
    x, y = site_tensors("qkv", 5)
    before = y.clone()
    added = single("qkv", 0, x, y)
    assert torch.equal(y, before)
    with torch.no_grad():
        assert single("qkv", 0, x, y) is y
    assert torch.equal(y, added)


def test_a_site_without_adapters_is_left_as_it_is() -> None:
    fused = adapter(LoraConfig(rank=4, alpha=4.0, target_modules=("q_proj",)))
    x, y = site_tensors("down", 3)
    forms: list[LoraDelta] = [
        SingleLora(fused),
        SegmentLora([fused], torch.zeros(3)),
        BatchedLora(StackedAdapters([fused]), torch.zeros(3).long()),
    ]
    for form in forms:
        assert form("down", 0, x, y) is y


@pytest.mark.parametrize(
    ("counts", "num_stacked", "alone"),
    [
        ({0: 8, 1: 8, 2: 8, 3: 8}, 4, set()),
        ({0: 29, 1: 1, 2: 1, 3: 1}, 4, set()),
        ({0: 2000, 1: 3, 2: 2}, 3, {0}),
        ({0: 4000, 1: 4000}, 2, set()),
        ({7: 100}, 32, {7}),
        ({}, 0, set()),
    ],
)
def test_which_adapters_are_taken_alone(counts: dict[int, int], num_stacked: int, alone: set[int]) -> None:
    assert taken_alone(counts, num_stacked) == alone


@given(st.dictionaries(st.integers(0, 40), st.integers(1, 600), max_size=40))
def test_no_other_choice_costs_less(counts: dict[int, int]) -> None:
    def cost(alone: set[int]) -> int:
        rest = [counts[owner] for owner in counts if owner not in alone]
        padded = 41 * max(2, *rest, 2) if rest else 0
        return padded + sum(counts[owner] + SEGMENT_COST_ROWS for owner in alone)

    chosen = cost(taken_alone(counts, 41))
    by_count = sorted(counts, key=lambda owner: -counts[owner])
    assert chosen == min(cost(set(by_count[:index])) for index in range(len(by_count) + 1))


def test_the_form_follows_the_batch() -> None:
    adapters = [adapter(LoraConfig(rank=4, alpha=4.0, target_modules=("q_proj",), seed=seed)) for seed in range(2)]
    stacked = StackedAdapters(adapters)
    assert mix_adapters(stacked, torch.tensor([-1, -1])) is None
    single = mix_adapters(stacked, torch.tensor([1, 1]))
    assert isinstance(single, SingleLora)
    assert single.adapter is adapters[1]
    assert isinstance(mix_adapters(stacked, torch.tensor([0, 1])), BatchedLora)
    assert isinstance(mix_adapters(stacked, torch.tensor([0, -1])), BatchedLora)


def test_bytes_are_counted() -> None:
    lora = LoraConfig(rank=16, alpha=4.0, target_modules=("q_proj", "down_proj"))
    shapes = module_shapes(MODEL)
    numbers = sum(16 * sum(shapes[module]) for module in lora.target_modules) * MODEL.num_layers
    assert adapter(lora).num_bytes == 4 * numbers
    assert adapter(lora, torch.bfloat16).num_bytes == 2 * numbers
