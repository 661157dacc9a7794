"""Training does not grow (P60): 2,000 batches of ever new shapes, with the worker's bound on compiled kernels."""

import os
import subprocess
import sys

from plait.cluster.client import KEPT_KERNELS, thread_variables

PROGRAM = """
import random, sys
from pathlib import Path
import psutil, torch
from plait.config.task import LossSettings, OptimizerSettings
from plait.lora.initial import pristine_adapter
from plait.models.decoder import Decoder
from plait.models.tiny import make_tiny_model
from plait.models.weights import load_model
from plait.training.trainer import AdapterTrainer
from plait.types.datum import Datum
from plait.types.lora import LoraConfig

config, weights = load_model(make_tiny_model(Path(sys.argv[1]), num_layers=1), torch.bfloat16)
lora = LoraConfig(4, 8, ("q_proj", "down_proj"))
trainer = AdapterTrainer(Decoder(config, weights), lora, pristine_adapter(config, lora))
chance = random.Random(0)
for step in range(2001):
    length = chance.randint(12, 60)
    tokens = tuple(chance.randrange(250) for _ in range(length + 1))
    ones = (1.0 / length,) * length
    datum = Datum(tokens[:-1], tokens[1:], weights=ones, logprobs=(-1.0,) * length, advantages=ones)
    trainer.forward_backward([datum], LossSettings())
    trainer.optim_step(OptimizerSettings())
    if step in (1000, 2000):
        print(psutil.Process().memory_info().rss, psutil.Process().num_fds())
"""
MAX_GROWTH_BYTES = 8 * 2**20


def test_memory_settles_over_two_thousand_steps(tmp_path: object) -> None:
    environment = os.environ | thread_variables(1)
    assert environment["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == str(KEPT_KERNELS)
    result = subprocess.run([sys.executable, "-c", PROGRAM, f"{tmp_path}/model"], capture_output=True, text=True, env=environment)
    (first, first_files), (last, last_files) = (map(int, line.split()) for line in result.stdout.splitlines())
    assert last - first < MAX_GROWTH_BYTES, f"grew by {(last - first) / 2**20:.1f} MiB over 1,000 steps"
    assert first_files == last_files
