"""Ends of chunks, measured on a real engine: generations go on from their caches, one after another."""

from pathlib import Path

from plait.models.decoder import Decoder
from plait.models.tiny import make_tiny_model
from plait.models.weights import load_model
from plait.simulation.measure_chunks import ResumedChunks
from plait.simulation.measure_profile import RESUMED_ROWS, Adapted

PROMPT_TOKENS = 40


def generated_tokens(chunks: ResumedChunks) -> list[int]:
    return [chunk.generated_tokens for chunk in chunks.chunks.values()]


def test_chunks_end_one_after_another_and_nothing_is_computed_again(tmp_path: Path) -> None:
    config, weights = load_model(make_tiny_model(tmp_path / "tiny"))
    chunks = Adapted(Decoder(config, weights), []).chunks(PROMPT_TOKENS)
    chunks.resume_s()
    engine, before = chunks.engine, generated_tokens(chunks)
    assert sorted(before) == [1 + number for number in range(1, RESUMED_ROWS + 1)]
    decoded = engine.num_decoded_tokens
    chunks.resume_s()
    assert generated_tokens(chunks) == [number + chunks.num_steps for number in before]
    assert engine.num_decoded_tokens == decoded + chunks.num_steps * RESUMED_ROWS
    assert engine.num_prefilled_tokens == (PROMPT_TOKENS - 1) * RESUMED_ROWS  # The last token is computed with the first step.
