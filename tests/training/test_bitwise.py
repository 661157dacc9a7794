"""A packed row has the bits it would have alone, where this machine grants batch invariance."""

import pytest
import torch

from plait.config.task import LossSettings
from plait.models.decoder import Decoder
from plait.models.invariance import machine_self_test, random_weights
from plait.training.trainer import AdapterTrainer
from plait.training.training_pass import PassSettings
from plait.types.lora import LoraConfig
from plait.types.model import ModelConfig, RopeScaling
from tests.training.tiny import make_adapter, make_datums, plain_logprobs, with_own_logprobs

MODEL = ModelConfig(
    family="llama", vocab_size=1024, hidden_size=576, intermediate_size=1536, num_layers=2, num_heads=9, num_kv_heads=3,
    head_dim=64, rms_norm_epsilon=1e-5, rope_theta=1e5, rope_scaling=RopeScaling(), tied_embeddings=True, max_context_tokens=1024,
)  # fmt: skip
LORA = LoraConfig(rank=8, alpha=16.0, target_modules=("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_packed_logprobs_equal_those_of_each_sequence_alone(dtype: torch.dtype, temperature: float) -> None:
    report = machine_self_test(dtype)
    if not report.granted:
        pytest.skip(report.detail)
    decoder = Decoder(MODEL, random_weights(MODEL, dtype))
    adapter = make_adapter(0, LORA, MODEL)
    datums = make_datums(temperature=temperature, num_groups=4, group_size=5)
    with torch.no_grad():
        alone = [plain_logprobs(decoder, datum, adapter, LORA).numpy() for datum in datums]
    for tokens in (24, 4096):
        trainer = AdapterTrainer(decoder, LORA, adapter, PassSettings(micro_batch_tokens=tokens))
        for found, expected in zip(trainer.forward(datums), alone, strict=True):
            assert found.tobytes() == expected.tobytes()
        metrics = trainer.forward_backward(with_own_logprobs(datums, alone), LossSettings(kind="ppo")).metrics
        assert metrics["ratio_mean"] == 1.0
        assert metrics["logprob_gap_max"] == 0.0
