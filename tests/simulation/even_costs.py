"""Costs that can be reckoned by hand."""


class EvenCosts:
    """A step takes a second, a hundredth for each row and a thousandth for each token of context; prompts a tenth a token.

    `resume_token_s`: of a cache that a chunk goes on from."""

    def __init__(self, pads_contexts: bool = False, resume_token_s: float = 0.0) -> None:
        self.pads_contexts, self._resume_token_s = pads_contexts, resume_token_s

    def prefill_s(self, num_tokens: int) -> float:
        return 0.1 * num_tokens

    def decode_step_s(self, num_rows: int, context_tokens: int) -> float:
        return 1 + 0.01 * num_rows + 0.001 * context_tokens if num_rows else 0.0

    def verify_step_s(self, num_rows: int, context_tokens: int, tokens_per_row: float) -> float:
        return self.decode_step_s(num_rows, context_tokens) + 0.05 * (tokens_per_row - 1)

    def train_s(self, num_tokens: int) -> float:
        return 0.01 * num_tokens

    def optimizer_s(self) -> float:
        return 1.0

    def publish_s(self) -> float:
        return 0.5

    def load_s(self, num_bytes: float, tier: str) -> float:
        return 0.0

    def offload_s(self, num_bytes: float, tier: str) -> float:
        return 0.0

    def resume_s(self, num_tokens: int) -> float:
        return self._resume_token_s * num_tokens

    def fetch_s(self, num_tokens: int) -> float:
        return 0.01 * num_tokens
