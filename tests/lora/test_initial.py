import pytest
import torch

from plait.lora.initial import pristine_adapter
from plait.lora.modules import adapter_shapes, module_shapes
from plait.models.tiny import tiny_config
from plait.types.errors import AdapterError
from plait.types.lora import LoraConfig

CONFIG = tiny_config("qwen3")


def test_a_is_uniform_within_its_bound_and_b_is_zero() -> None:
    tensors = pristine_adapter(CONFIG, LoraConfig(rank=32, alpha=32, target_modules=("q_proj", "down_proj", "lm_head")))
    assert len(tensors) == 2 * (2 * CONFIG.num_layers + 1)
    for name, tensor in tensors.items():
        assert tensor.dtype == torch.float32
        if name.endswith(".B"):
            assert not tensor.any()
        else:
            bound = tensor.shape[1] ** -0.5
            assert tensor.abs().max() <= bound
            assert tensor.std() == pytest.approx(bound / 3**0.5, rel=0.1)


def test_values_do_not_depend_on_other_targets_or_their_order() -> None:
    alone = pristine_adapter(CONFIG, LoraConfig(rank=4, alpha=8, target_modules=("v_proj",), seed=7))
    among = pristine_adapter(CONFIG, LoraConfig(rank=4, alpha=8, target_modules=("lm_head", "v_proj", "q_proj"), seed=7))
    assert all(torch.equal(tensor, among[name]) for name, tensor in alone.items())


def test_seeds_and_tensors_differ() -> None:
    lora = LoraConfig(rank=4, alpha=8, target_modules=("v_proj",), seed=1)
    first, second = pristine_adapter(CONFIG, lora), pristine_adapter(CONFIG, LoraConfig(4, 8, ("v_proj",), seed=2))
    assert not torch.equal(first["layers.0.v_proj.A"], second["layers.0.v_proj.A"])
    assert not torch.equal(first["layers.0.v_proj.A"], first["layers.1.v_proj.A"])
    assert all(torch.equal(tensor, first[name]) for name, tensor in pristine_adapter(CONFIG, lora).items())


def test_shapes_follow_grouped_queries() -> None:
    shapes = module_shapes(CONFIG)
    assert shapes["k_proj"] == (32, 64)
    assert shapes["q_proj"] == (64, 64)
    assert shapes["lm_head"] == (CONFIG.vocab_size, 64)
    assert adapter_shapes(CONFIG, LoraConfig(3, 3, ("k_proj",)))["layers.1.k_proj.B"] == (32, 3)


@pytest.mark.parametrize(
    ("rank", "modules", "words"),
    [(4, ("w1",), "'w1'"), (4, (), "empty"), (0, ("q_proj",), "rank is 0"), (4, ("q_proj", "q_proj"), "repeats")],
)
def test_unusable_configs_are_named(rank: int, modules: tuple[str, ...], words: str) -> None:
    with pytest.raises(AdapterError, match=words):
        pristine_adapter(CONFIG, LoraConfig(rank, 8, modules))
