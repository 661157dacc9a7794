"""peft + transformers give the same log-probabilities as this package's decoder with the same adapter, to 1e-4 in float32."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from plait.lora.initial import pristine_adapter
from plait.lora.merge import merge_into_base
from plait.lora.mix import FusedAdapter, SingleLora, mix_adapters
from plait.lora.peft_format import export_adapter, import_adapter
from plait.lora.stack import StackedAdapters
from plait.models.decoder import Decoder
from plait.models.tiny import make_tiny_model
from plait.types.lora import LoraConfig
from tests.models.reference import decoder_logits, load_decoder, random_tokens

# peft remarks on a tied unembedding and uses names that transformers deprecates.
pytestmark = pytest.mark.filterwarnings(
    "ignore:::peft", "ignore:.*is_gradient_checkpointing:FutureWarning", "ignore:.*tie_word_embeddings"
)

TOLERANCE = 1e-4
ALL_LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
ADAPTERS = {
    "small": LoraConfig(rank=3, alpha=12, target_modules=("q_proj", "v_proj"), seed=1),
    "mlp": LoraConfig(rank=5, alpha=2.5, target_modules=("gate_proj", "down_proj"), seed=2),
    "linear": LoraConfig(rank=16, alpha=32, target_modules=ALL_LINEAR, seed=3),
    "unembedding": LoraConfig(rank=8, alpha=16, target_modules=(*ALL_LINEAR, "lm_head"), seed=4),
}
MODELS = {"llama": {}, "llama-untied": {"tied_embeddings": False}, "qwen2": {}, "qwen3": {}}


@pytest.fixture(scope="module", params=MODELS)
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Decoder]:
    folder = make_tiny_model(tmp_path_factory.mktemp("base"), request.param.split("-")[0], **MODELS[request.param])
    return folder, load_decoder(folder)


def trained_adapter(decoder: Decoder, lora: LoraConfig) -> dict[str, Tensor]:
    """An adapter whose B is large enough to change every log-probability."""
    generator = torch.Generator().manual_seed(lora.seed)
    tensors = pristine_adapter(decoder.config, lora)
    return {n: torch.randn(t.shape, generator=generator) * 0.1 if n.endswith(".B") else t for n, t in tensors.items()}


def peft_logprobs(folder: Path, adapter: Path, tokens: Tensor) -> Tensor:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    model: Any = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), adapter).eval()
    with torch.no_grad():
        return model(tokens).logits.log_softmax(-1)


@pytest.mark.parametrize("name", ADAPTERS)
def test_exported_adapter_reproduces_logprobs_in_peft(base: tuple[Path, Decoder], name: str, tmp_path: Path) -> None:
    folder, decoder = base
    lora, tensors = ADAPTERS[name], trained_adapter(decoder, ADAPTERS[name])
    export_adapter(tmp_path, lora, tensors, str(folder))
    tokens = random_tokens(decoder.config.vocab_size)
    ours = decoder_logits(decoder, tokens, SingleLora(FusedAdapter(lora, tensors, decoder.config, torch.float32))).log_softmax(-1)
    assert (ours - decoder_logits(decoder, tokens).log_softmax(-1)).abs().max() > 0.1
    torch.testing.assert_close(ours, peft_logprobs(folder, tmp_path, tokens), atol=TOLERANCE, rtol=0)


def test_mixed_ranks_in_one_batch_each_equal_peft(base: tuple[Path, Decoder], tmp_path: Path) -> None:
    folder, decoder = base
    trained = {name: trained_adapter(decoder, lora) for name, lora in ADAPTERS.items()}
    fused = [FusedAdapter(ADAPTERS[name], tensors, decoder.config, torch.float32) for name, tensors in trained.items()]
    tokens = random_tokens(decoder.config.vocab_size, batch=len(ADAPTERS), length=24)
    rows = torch.arange(len(ADAPTERS)).repeat_interleave(24)
    ours = decoder_logits(decoder, tokens, mix_adapters(StackedAdapters(fused), rows)).log_softmax(-1)
    for index, (name, tensors) in enumerate(trained.items()):
        export_adapter(tmp_path / name, ADAPTERS[name], tensors)
        expected = peft_logprobs(folder, tmp_path / name, tokens[index : index + 1])
        torch.testing.assert_close(ours[index : index + 1], expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("name", ["mlp", "unembedding"])
def test_merged_model_equals_adapter_on_base(base: tuple[Path, Decoder], name: str, tmp_path: Path) -> None:
    folder, decoder = base
    lora, tensors = ADAPTERS[name], trained_adapter(decoder, ADAPTERS[name])
    export_adapter(tmp_path / "adapter", lora, tensors)
    merged = load_decoder(merge_into_base(folder, tmp_path / "adapter", tmp_path / "merged"))
    tokens = random_tokens(decoder.config.vocab_size)
    expected = decoder_logits(decoder, tokens, SingleLora(FusedAdapter(lora, tensors, decoder.config, torch.float32)))
    torch.testing.assert_close(decoder_logits(merged, tokens), expected, atol=TOLERANCE, rtol=0)


def test_adapter_made_by_peft_is_imported(base: tuple[Path, Decoder], tmp_path: Path) -> None:
    from peft import LoraConfig as PeftConfig
    from peft import get_peft_model
    from transformers import AutoModelForCausalLM

    folder, decoder = base
    torch.manual_seed(0)
    settings = PeftConfig(r=4, lora_alpha=8, target_modules=["up_proj", "k_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), settings)
    model.save_pretrained(str(tmp_path))
    lora, tensors = import_adapter(tmp_path, decoder.config)
    assert lora == LoraConfig(rank=4, alpha=8, target_modules=("k_proj", "up_proj"))
    tokens = random_tokens(decoder.config.vocab_size)
    with torch.no_grad():
        expected = model.eval()(tokens).logits.log_softmax(-1)
    ours = decoder_logits(decoder, tokens, SingleLora(FusedAdapter(lora, tensors, decoder.config, torch.float32))).log_softmax(-1)
    torch.testing.assert_close(ours, expected, atol=TOLERANCE, rtol=0)
