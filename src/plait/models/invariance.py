"""A self-test of batch invariance: may this machine claim it, for this model and dtype?

Batch invariance means that a row's log-probabilities have the same bits in any batch, at any cache padding, with or without
prepacked weights, token by token, a few at a time (as drafts are verified) or in one pass, whoever else's adapter is in the batch,
with one thread or two. It rests on the math library's kernels, so it is measured, not assumed.
"""

from collections.abc import Mapping

import msgspec
import torch
from torch import Tensor

from plait.models.attention import PaddedAttention, attend, causal_mask, fold_queries, unfold_queries
from plait.models.decoder import Decoder
from plait.models.kernels import grouped_product, product
from plait.models.logprobs import scaled_logprobs
from plait.types.model import ModelConfig, RopeScaling

BATCH_SIZES = (1, 2, 5, 17, 33)
CACHE_LENGTHS = (128, 192, 384)
"""Padded cache lengths tried for each batch size in turn; unused keys hold garbage."""
SPAN_TOKENS = range(2, 10)
"""Tokens fed at once where drafts are verified, beside rows that feed one."""
TEST_TOKENS = 40
MANY_SEQUENCES = 4
"""So many times `TEST_TOKENS` is more rows than `models.float32_products.MIN_ROWS`."""
TEST_LAYERS = 3
"""Layers run: kernels are chosen by shape, and all layers have the same shapes."""


class InvarianceReport(msgspec.Struct, frozen=True):
    granted: bool
    detail: str


class _CachedAttention:
    """Attention over a padded cache that starts out as garbage."""

    def __init__(self, config: ModelConfig, num_rows: int, num_keys: int, num_layers: int, dtype: torch.dtype) -> None:
        shape = (num_layers, 2, num_rows, config.num_kv_heads, num_keys, config.head_dim)
        self.cache = torch.randn(shape, generator=torch.Generator().manual_seed(num_rows)).to(dtype)
        self.group = config.num_heads // config.num_kv_heads
        self.positions_BL = torch.zeros(num_rows, 1, dtype=torch.long)

    def __call__(self, layer: int, q_RHD: Tensor, k_RKD: Tensor, v_RKD: Tensor) -> Tensor:
        batch, length = self.positions_BL.shape
        keys, values = self.cache[layer]
        rows = torch.arange(batch)[:, None, None]
        heads = torch.arange(k_RKD.shape[1])[None, None, :]
        at = self.positions_BL[:, :, None]
        keys[rows, heads, at] = k_RKD.view(batch, length, *k_RKD.shape[1:])
        values[rows, heads, at] = v_RKD.view(batch, length, *v_RKD.shape[1:])
        mask = causal_mask(self.positions_BL, keys.shape[2], self.group, q_RHD.dtype)
        q = fold_queries(q_RHD, batch, k_RKD.shape[1])
        return unfold_queries(attend(q, keys, values, mask, q.shape[-1] ** -0.5), length)


class _MixedAttention:
    """The first rows are one attention's, the rest another's."""

    def __init__(self, first: _CachedAttention, rest: _CachedAttention) -> None:
        self.parts = (first, rest)

    @property
    def positions_R(self) -> Tensor:
        return torch.cat([part.positions_BL.flatten() for part in self.parts])

    def __call__(self, layer: int, q_RHD: Tensor, k_RKD: Tensor, v_RKD: Tensor) -> Tensor:
        counts = [part.positions_BL.numel() for part in self.parts]
        rows = zip(self.parts, q_RHD.split(counts), k_RKD.split(counts), v_RKD.split(counts), strict=True)
        return torch.cat([part(layer, q, k, v) for part, q, k, v in rows])


def _full_pass(decoder: Decoder, tokens_T: Tensor, num_sequences: int = 1) -> tuple[Tensor, Tensor]:
    """Hidden states and log-probabilities of every token, of the last of so many equal sequences."""
    config, length = decoder.config, len(tokens_T)
    attention = PaddedAttention(num_sequences, length, config.num_heads // config.num_kv_heads, decoder.dtype, decoder.device)
    hidden_RE = decoder.forward(tokens_T.repeat(num_sequences), torch.arange(length).repeat(num_sequences), attention)
    return hidden_RE[-length:], scaled_logprobs(decoder.logits(hidden_RE)[-length:], 1.0)


def _decode_pass(decoder: Decoder, tokens_T: Tensor, num_rows: int, num_keys: int, num_tokens: int) -> tuple[Tensor, Tensor]:
    """Feed the same tokens in every row, `num_tokens` at a time: the last row's hidden states, and its log-probabilities for the
    tokens of the last pass."""
    attention = _CachedAttention(decoder.config, num_rows, num_keys, len(decoder.layers), decoder.dtype)
    parts = []
    for positions_L in torch.arange(len(tokens_T)).split(num_tokens):
        attention.positions_BL = positions_L[None].expand(num_rows, -1)
        hidden_RE = decoder.forward(tokens_T[positions_L].repeat(num_rows), positions_L.repeat(num_rows), attention)
        parts.append(hidden_RE[-len(positions_L) :])
    return torch.cat(parts), scaled_logprobs(decoder.logits(hidden_RE), 1.0)[-len(positions_L) :]


def _verify_pass(decoder: Decoder, tokens_T: Tensor, num_rows: int, num_tokens: int) -> tuple[Tensor, Tensor]:
    """Feed `num_tokens` at a time in some rows, one at a time in as many others: the last row's hidden states of either."""
    num_keys, parts = CACHE_LENGTHS[num_tokens % len(CACHE_LENGTHS)], []
    spans, singles = (_CachedAttention(decoder.config, num_rows, num_keys, len(decoder.layers), decoder.dtype) for _ in range(2))
    for step, positions_L in enumerate(torch.arange(len(tokens_T)).split(num_tokens)):
        spans.positions_BL, singles.positions_BL = positions_L.expand(num_rows, -1), torch.full((num_rows, 1), step)
        attention = _MixedAttention(spans, singles)
        hidden_RE = decoder.forward(tokens_T[attention.positions_R], attention.positions_R, attention)
        parts.append((hidden_RE[:-num_rows][-len(positions_L) :], hidden_RE[-1:]))
    of_span, of_single = zip(*parts, strict=True)
    return torch.cat(of_span), torch.cat(of_single)


def _verifying_problem(trainer: Decoder, engine: Decoder, tokens_T: Tensor) -> str:
    hidden_TE, _ = _full_pass(trainer, tokens_T)
    for num_tokens in SPAN_TOKENS:
        num_rows = 1 + num_tokens % 3
        for hidden in _verify_pass(engine, tokens_T, num_rows, num_tokens):
            if not torch.equal(hidden, hidden_TE[: len(hidden)]):
                gap = (hidden - hidden_TE[: len(hidden)]).abs().max().item()
                return f"{num_rows} rows of {num_tokens} new tokens beside as many of one differ from a full pass (by {gap:.1e})"
    return ""


def _decoding_problem(trainer: Decoder, engine: Decoder, tokens_T: Tensor) -> str:
    hidden_TE, logprobs_TV = _full_pass(trainer, tokens_T)
    cases = [(num_rows, CACHE_LENGTHS[index % len(CACHE_LENGTHS)], 1) for index, num_rows in enumerate(BATCH_SIZES)]
    for num_rows, num_keys, num_tokens in [*cases, (2, 160, 3), (2, 160, 16)]:
        hidden, logprobs = _decode_pass(engine, tokens_T, num_rows, num_keys, num_tokens)
        if not (torch.equal(hidden, hidden_TE) and torch.equal(logprobs, logprobs_TV[-len(logprobs) :])):
            gap = (hidden - hidden_TE).abs().max().item()
            case = f"{num_rows} rows of {num_tokens} new tokens over {num_keys} cached ones"
            return f"{case} differ from a full pass (hidden states by {gap:.1e})"
    return ""


def _many_rows_problem(decoder: Decoder, tokens_T: Tensor) -> str:
    """Passes of many rows may multiply in another dtype, by weights that are kept in it or converted."""
    few, many = _full_pass(decoder, tokens_T), _full_pass(decoder, tokens_T, MANY_SEQUENCES)
    same = all(torch.equal(one, other) for one, other in zip(few, many, strict=True))
    return "" if same else f"a pass of {MANY_SEQUENCES * len(tokens_T)} rows differs from one of {len(tokens_T)}"


def _threads_problem(decoder: Decoder, tokens_T: Tensor) -> str:
    """Workers are given and lose threads while they run."""
    num_threads, passes = torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        passes.append(_full_pass(decoder, tokens_T, MANY_SEQUENCES)[1])
    torch.set_num_threads(num_threads)
    return "" if torch.equal(*passes) else "one thread and two give different bits"


def _adapter_problem(config: ModelConfig, dtype: torch.dtype) -> str:
    """Whether a row meets an adapter's A and B alone as it does beside others."""
    generator = torch.Generator().manual_seed(1)
    rank, width = 16, config.num_kv_heads * config.head_dim
    for num_inputs, num_outputs in {(config.hidden_size, 3 * rank), (config.intermediate_size, rank), (rank, width)}:
        x_RI = torch.randn(64, num_inputs, generator=generator).to(dtype)
        weight_NIO = torch.randn(8, num_inputs, num_outputs, generator=generator).to(dtype)
        for num_rows in (2, 5, 8):
            together = grouped_product(x_RI[: 8 * num_rows].view(8, num_rows, num_inputs), weight_NIO)
            if not torch.equal(together[-1], product(x_RI, weight_NIO[-1])[7 * num_rows : 8 * num_rows]):
                return f"{num_rows} rows of an adapter with {num_inputs} inputs differ in a mix"
    return ""


@torch.inference_mode()
def self_test(config: ModelConfig, weights: Mapping[str, Tensor]) -> InvarianceReport:
    """Compare every path to the trainer's full pass, bit for bit, on the first layers of the given model."""
    embedding = weights["embed_tokens"]
    if embedding.device.type != "cpu":
        return InvarianceReport(False, "only tested on CPU; on an accelerator the engine makes no such claim")
    shallow = msgspec.structs.replace(config, num_layers=min(TEST_LAYERS, config.num_layers))
    trainer, engine = Decoder(shallow, weights), Decoder(shallow, weights, prepack=True)
    tokens_T = torch.randint(0, config.vocab_size, (TEST_TOKENS,), generator=torch.Generator().manual_seed(0))
    problem = (
        _decoding_problem(trainer, engine, tokens_T)
        or _verifying_problem(trainer, engine, tokens_T)
        or _many_rows_problem(trainer, tokens_T)
        or _many_rows_problem(Decoder(shallow, weights, float32_bytes=0), tokens_T)
        or _threads_problem(trainer, tokens_T)
        or _adapter_problem(config, embedding.dtype)
    )
    batches = ", ".join(map(str, BATCH_SIZES))
    return InvarianceReport(not problem, problem or f"decoding at batch {batches} equals the trainer's pass bit for bit")


def machine_self_test(dtype: torch.dtype) -> InvarianceReport:
    """The same on random weights of SmolLM2-135M's layer shapes, for machines where no model is at hand yet."""
    config = ModelConfig(
        family="llama", vocab_size=4096, hidden_size=576, intermediate_size=1536, num_layers=2, num_heads=9, num_kv_heads=3,
        head_dim=64, rms_norm_epsilon=1e-5, rope_theta=1e5, rope_scaling=RopeScaling(), tied_embeddings=True,
        max_context_tokens=1024,
    )  # fmt: skip
    return self_test(config, random_weights(config, dtype))


def random_weights(config: ModelConfig, dtype: torch.dtype, seed: int = 0) -> dict[str, Tensor]:
    """Random base weights by the names of `models.weights`, for tests and benchmarks."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return (torch.randn(shape, generator=generator) * shape[-1] ** -0.5).to(dtype)

    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    weights = {"embed_tokens": normal(config.vocab_size, hidden), "norm": torch.ones(hidden, dtype=dtype)}
    for index in range(config.num_layers):
        shapes = {
            "q_proj": (queries, hidden), "k_proj": (keys, hidden), "v_proj": (keys, hidden), "o_proj": (hidden, queries),
            "gate_proj": (inner, hidden), "up_proj": (inner, hidden), "down_proj": (hidden, inner),
        }  # fmt: skip
        weights |= {f"layers.{index}.{name}": normal(*shape) for name, shape in shapes.items()}
        weights |= {f"layers.{index}.{name}": torch.ones(hidden, dtype=dtype) for name in ("input_norm", "post_attention_norm")}
    return weights
