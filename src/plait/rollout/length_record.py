"""What a LengthHistory knows, as bytes that outlive the process. Pure.

- Prompts go by Python's hash of their tokens, so what another Python wrote, that hashes otherwise, is not read.
- A digest goes before everything else: what is torn or changed is not read either. Lengths only guide scheduling, so whoever cannot
  read them begins without.
"""

import hashlib
from collections.abc import Iterable, Iterator

import msgspec

from plait.rollout.length_estimates import HistoryKey, LengthHistory, PromptLengths

FORMAT = 1
MAX_PROMPTS_PER_TASK = 8192
"""The latest are kept; the history itself bounds how many there are of all tasks."""
DIGEST_BYTES = 16

Lengths = tuple[HistoryKey, float, float]
"""Of a prompt: mean and maximum, in tokens."""


class _Task(msgspec.Struct, frozen=True, array_like=True):
    tenant: str
    task: str
    prompts: list[tuple[int, float, float]]
    """(hash, mean, maximum), the latest last."""


class _Record(msgspec.Struct, frozen=True, array_like=True):
    format: int
    hash_check: int
    tasks: list[_Task]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Record).decode


def snapshot(history: LengthHistory) -> list[Lengths]:
    """Of now, the least recently used first."""
    return [(key, lengths.mean_tokens, lengths.max_tokens) for key, lengths in history.items()]


def encode_lengths(lengths: Iterable[Lengths]) -> bytes:
    tasks: dict[tuple[str, str], list[tuple[int, float, float]]] = {}
    for (tenant, task, prompt), mean_tokens, max_tokens in lengths:
        tasks.setdefault((tenant, task), []).append((prompt, mean_tokens, max_tokens))
    kept = [_Task(tenant, task, prompts[-MAX_PROMPTS_PER_TASK:]) for (tenant, task), prompts in tasks.items()]
    content = _encode(_Record(FORMAT, _hash_check(), kept))
    return _digest(content) + content


def decode_lengths(data: bytes) -> Iterator[Lengths]:
    """Raises ValueError before the first if they cannot be used."""
    content = data[DIGEST_BYTES:]
    if data[:DIGEST_BYTES] != _digest(content):
        raise ValueError("it is damaged")
    try:
        record = _decode(content)
    except msgspec.MsgspecError as error:
        raise ValueError(f"it is of another version: {error}") from error
    if (record.format, record.hash_check) != (FORMAT, _hash_check()):
        raise ValueError("another version of Plait or Python wrote it")
    return (
        ((task.tenant, task.task, prompt), mean_tokens, max_tokens)
        for task in record.tasks
        for prompt, mean_tokens, max_tokens in task.prompts
    )


def restore(history: LengthHistory, lengths: Iterable[Lengths]) -> None:
    for key, mean_tokens, max_tokens in lengths:
        history.put(key, PromptLengths(mean_tokens, max_tokens))


def _hash_check() -> int:
    """Differs where Python hashes tuples of tokens otherwise."""
    return hash(tuple(range(7, 1000, 13)))


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()
