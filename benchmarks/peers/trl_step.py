"""GRPO steps of TRL, one each time a line comes in on standard input; runs in the environment `.bench-peers/trl`.

Prints one JSON line when ready, and one for each step with its wall seconds and the CPU seconds of this process.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

TARGET_MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


class OnDemand(TrainerCallback):
    """Waits for a line before each step, and tells what the step took."""

    def __init__(self, output: Any) -> None:
        self.output = output
        self.num_steps = 0

    def say(self, **values: Any) -> None:
        print(json.dumps(values), file=self.output, flush=True)

    def on_step_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        self.say(ready=True, steps=self.num_steps)
        if not sys.stdin.readline():
            os._exit(0)  # whoever measured has enough
        self.start = time.perf_counter(), time.process_time()

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        self.num_steps += 1
        self.say(wall_s=time.perf_counter() - self.start[0], cpu_s=time.process_time() - self.start[1])


def vowel_share(completions: list[Any], **rest: Any) -> list[float]:
    """Text or the messages of a conversation."""
    texts = [completion if isinstance(completion, str) else completion[0]["content"] for completion in completions]
    return [sum(character in "aeiou" for character in text) / max(1, len(text)) for text in texts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument(
        "--prompts", type=Path, required=True, help="a JSON list of questions; each step takes --num-prompts of them"
    )
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), required=True)
    parser.add_argument("--num-prompts", type=int, default=8)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--micro-batch", type=int, default=8, help="sequences in one forward and backward pass")
    parser.add_argument("--autocast", action="store_true", help="float32 weights under bf16 autocast instead of bf16 weights")
    parser.add_argument("--output-folder", type=Path, required=True)
    args = parser.parse_args()
    output, sys.stdout = sys.stdout, sys.stderr  # TRL prints progress
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    make_trainer(args, OnDemand(output)).train()


def make_trainer(args: argparse.Namespace, callback: OnDemand) -> GRPOTrainer:
    batch = args.num_prompts * args.group_size
    micro_batch = min(batch, args.micro_batch)
    config = GRPOConfig(
        output_dir=str(args.output_folder),
        use_cpu=True,
        bf16=args.autocast,
        model_init_kwargs={"dtype": "float32" if args.autocast else args.dtype},
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=batch // micro_batch,
        num_generations=args.group_size,
        max_completion_length=args.new_tokens,
        generation_kwargs={"min_new_tokens": args.new_tokens},
        gradient_checkpointing=False,
        learning_rate=5e-4,
        max_steps=10**6,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    questions = json.loads(args.prompts.read_text(encoding="utf-8"))
    dataset = Dataset.from_list([{"prompt": [{"role": "user", "content": question}]} for question in questions])
    lora = LoraConfig(r=args.rank, lora_alpha=2 * args.rank, lora_dropout=0.0, target_modules=TARGET_MODULES, task_type="CAUSAL_LM")
    return GRPOTrainer(
        model=str(args.model), reward_funcs=vowel_share, args=config, train_dataset=dataset, peft_config=lora, callbacks=[callback]
    )


if __name__ == "__main__":
    main()
