"""The same script for every server that speaks to a Tinker SDK; needs nothing but that SDK, whichever version its environment has.

    python tinker_script.py BASE_MODEL VOCAB_SIZE        with TINKER_BASE_URL and TINKER_API_KEY

Reads a line {"load": "train" | "sample", ...} and answers with one: {"wall_s", "count" or "num_tokens"}, or {"error"}.
"""

import json
import random
import sys
import time
import traceback

import tinker
from tinker import types

RANK = 8
LEARNING_RATE = 1e-4
RESULT_S = 600.0


class Script:
    def __init__(self, base_model: str, vocab_size: int) -> None:
        self.random, self.vocab_size = random.Random(0), vocab_size
        service = tinker.ServiceClient()
        self.training = settled(service.create_lora_training_client(base_model=base_model, rank=RANK, train_unembed=False))
        self.sampler = None

    def tokens(self, num: int) -> list[int]:
        return [self.random.randrange(3, self.vocab_size) for _ in range(num)]

    def train(self, count: int, num_datums: int, num_tokens: int) -> dict:
        """`count` steps, each asked for when the one before is over."""
        data = [self.datum(num_tokens) for _ in range(num_datums)]
        start_s = time.perf_counter()
        for _ in range(count):
            passed = self.training.forward_backward(data, "cross_entropy")
            stepped = self.training.optim_step(types.AdamParams(learning_rate=LEARNING_RATE))
            passed.result(timeout=RESULT_S)
            stepped.result(timeout=RESULT_S)
        return {"count": count, "wall_s": time.perf_counter() - start_s}

    def datum(self, num_tokens: int) -> types.Datum:
        tokens = self.tokens(num_tokens + 1)
        inputs = {"target_tokens": tokens[1:], "weights": [1.0] * num_tokens}
        return types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)

    def sample(self, num_prompts: int, prompt_tokens: int, max_tokens: int) -> dict:
        """One sample of each prompt, all asked for at once, with the weights as they are at the first call."""
        if self.sampler is None:
            self.sampler = settled(self.training.save_weights_and_get_sampling_client())
        params = types.SamplingParams(max_tokens=max_tokens, temperature=1.0, stop=[])
        prompts = [types.ModelInput.from_ints(self.tokens(prompt_tokens)) for _ in range(num_prompts)]
        start_s = time.perf_counter()
        futures = [self.sampler.sample(prompt, num_samples=1, sampling_params=params) for prompt in prompts]
        num_tokens = sum(len(future.result(timeout=RESULT_S).sequences[0].tokens) for future in futures)
        return {"num_tokens": num_tokens, "wall_s": time.perf_counter() - start_s}


def settled(client: object) -> object:
    """SDK 0.38 gives futures of clients, 0.25 the clients themselves."""
    return client.result() if hasattr(client, "result") else client


def main() -> None:
    script = Script(sys.argv[1], int(sys.argv[2]))
    for line in sys.stdin:
        options = json.loads(line)
        try:
            answer = getattr(script, options.pop("load"))(**options)
        except Exception as error:
            answer = {"error": "".join(traceback.format_exception(error))[-2000:]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
