"""Text to tokens and back, torch-free and thread-safe.

- No special token is ever added; what a chat template writes is all there is.
- `decode(a + b)` is the decoding of the joined bytes of `a` and `b`: a token gives the same bytes wherever it stands.
- Sampled tokens are never encoded again: `render_followup` gives only what is new.
"""

import threading
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from plait.models.chat_template import ChatTemplate
from plait.models.hf_config import read_json
from plait.models.token_bytes import token_bytes_table
from plait.types.errors import ModelError
from plait.types.messages import Message

SPECIAL_NAMES = ("bos_token", "eos_token", "pad_token", "unk_token")


class Tokenizer:
    """A model folder's tokenizer and chat template."""

    def __init__(
        self, backend: Backend, template: str | None, special_tokens: dict[str, str], eos_token_ids: Iterable[int] = ()
    ) -> None:
        """`special_tokens`: "bos_token" and the like -> text. `eos_token_ids` come from the model's configuration."""
        self._backend = backend
        self._lock = threading.Lock()
        self._special_tokens = special_tokens
        self._template = None if template is None else ChatTemplate(template, special_tokens)
        self._eos_token_ids = tuple(eos_token_ids)
        added = backend.get_added_tokens_decoder()
        self._special_ids = frozenset(index for index, token in added.items() if token.special)
        self._bytes = token_bytes_table(backend)

    @classmethod
    def load(cls, folder: Path | str) -> "Tokenizer":
        """Read tokenizer.json, tokenizer_config.json and chat_template.jinja of a model folder.

        Raises `ModelError` if a file is missing or torn, or if the kind of tokenizer is not served.
        """
        folder = Path(folder)
        settings = _optional_json(folder / "tokenizer_config.json")
        return cls(_backend(folder), _template_source(folder, settings), _special_tokens(settings), _eos_token_ids(folder))

    def encode(self, text: str) -> tuple[int, ...]:
        """Tokens of a text. Text that spells a special token becomes that token."""
        with self._lock:
            return tuple(self._backend.encode(text, add_special_tokens=False).ids)

    def decode_bytes(self, tokens: Sequence[int]) -> bytes:
        """The exact bytes the tokens stand for; special tokens kept, ids without a token give nothing."""
        table = self._bytes
        if any(token < 0 for token in tokens):
            raise ModelError(f"Token {min(tokens)} is negative.", "Token ids are counted from 0.")
        return b"".join(table[token] for token in tokens if token < len(table))

    @property
    def special_ids(self) -> frozenset[int]:
        """Tokens that are no text: marks of turns and the like."""
        return self._special_ids

    def decode(self, tokens: Sequence[int]) -> str:
        """The text, special tokens kept. A character whose bytes are not all there yet shows as U+FFFD."""
        return self.decode_bytes(tokens).decode("utf-8", errors="replace")

    def decode_text(self, tokens: Sequence[int]) -> str:
        """The text without special tokens."""
        return self.decode([token for token in tokens if token not in self._special_ids])

    def render_prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Tokens of a conversation up to where the assistant's answer begins."""
        return self.encode(self.chat_template.render(messages, generation_prompt=True))

    def render_followup(self, message: Message, previous_ended: bool) -> tuple[int, ...]:
        """The new tokens after an assistant turn: its end if it lacks one, the separator, `message`, the generation prompt.

        `previous_ended` says that the turn's sampled tokens close with a stop token.
        Raises `ModelError` if the template would rewrite what was sampled.
        """
        suffix = self.encode(self.chat_template.followup_text(message))
        return suffix[self._end_length(suffix) :] if previous_ended else suffix

    def _end_length(self, suffix: tuple[int, ...]) -> int:
        """Tokens up to and with the end of turn, before which only white space may stand."""
        for position, token in enumerate(suffix):
            if token in self.stop_token_ids:
                return position + 1
            if self.decode((token,)).strip():
                break
        return 0

    @property
    def chat_template(self) -> ChatTemplate:
        if self._template is None:
            raise ModelError("The model has no chat template.", "Put a chat_template.jinja into its folder.")
        return self._template

    @cached_property
    def stop_token_ids(self) -> tuple[int, ...]:
        """End tokens of the model's configuration, of the tokenizer, and the one that closes a turn in the chat template."""
        ids = [*self._eos_token_ids, self._backend.token_to_id(self._special_tokens.get("eos_token", "")), self._turn_end()]
        return tuple(dict.fromkeys(token for token in ids if token is not None))

    @property
    def vocab_size(self) -> int:
        """One more than the largest id; a model's output may be wider (padding)."""
        return len(self._bytes)

    def _turn_end(self) -> int | None:
        """The special token right after an assistant's answer, if the template is such that there is one."""
        if self._template is None:
            return None
        answer, conversation = "plait-probe-answer", [Message("user", "plait-probe-question")]
        try:
            text = self._template.render([*conversation, Message("assistant", answer)], generation_prompt=False)
        except ModelError:
            return None  # The template takes no such conversation: the configuration's end tokens are all there are.
        rest = self.encode(text[text.rfind(answer) + len(answer) :].lstrip()) if answer in text else ()
        return rest[0] if rest and rest[0] in self._special_ids else None


def _backend(folder: Path) -> Backend:
    path = folder / "tokenizer.json"
    if not path.exists():
        raise ModelError(f"{path} does not exist.", "Only folders with a tokenizer.json are read; pull the model again.")
    try:
        return Backend.from_file(str(path))
    except Exception as error:  # The library raises bare Exception for every fault of the file.
        raise ModelError(f"{path} cannot be read: {error}.", "Fetch the file again.") from error


def _optional_json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}


def _template_source(folder: Path, settings: dict[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.exists():
        return path.read_text(encoding="utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):
        template = next((entry["template"] for entry in template if entry["name"] == "default"), None)
    return template


def _special_tokens(settings: dict[str, Any]) -> dict[str, str]:
    """Values are text, or objects with the text in `content`."""
    found = {name: settings[name] for name in SPECIAL_NAMES if settings.get(name)}
    return {name: value["content"] if isinstance(value, dict) else value for name, value in found.items()}


def _eos_token_ids(folder: Path) -> list[int]:
    ids: list[int] = []
    for name in ("generation_config.json", "config.json"):
        value = _optional_json(folder / name).get("eos_token_id")
        ids += value if isinstance(value, list) else [value] if value is not None else []
    return ids
