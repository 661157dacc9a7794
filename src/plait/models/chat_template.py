"""Chat templates: Jinja text from a model's folder, rendered as transformers renders it.

- Templates come with downloaded models, so they run in Jinja's immutable sandbox.
- `followup_text` gives what comes after an assistant turn without rendering that turn again. It first proves on probes that the
  template keeps what stands before a new message (the prefix property); a template that rewrites history is refused.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, NoReturn

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from plait.types.errors import ModelError
from plait.types.messages import Message, ToolCall

PROBE_USER = "plait-probe-question"
PROBE_ANSWERS = ("plait-probe-answer", "<think>\nplait-probe-thought\n</think>\n\nplait-probe-answer")
"""Answers whose text must survive. The second is the form whose thoughts some templates drop from history."""


class GenerationBlock(Extension):
    """`{% generation %}` marks assistant text for training masks elsewhere; here its body is rendered as it is."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class ChatTemplate:
    """One template with the special tokens it may name. Thread-safe."""

    def __init__(self, source: str, special_tokens: Mapping[str, str], now: Callable[[], datetime] = datetime.now) -> None:
        """`special_tokens`: "bos_token" and the like. `now` is what `strftime_now` shows. Raises `ModelError` on bad syntax."""
        self._special_tokens = dict(special_tokens)
        environment = _environment(now)
        try:
            self._template = environment.from_string(source)
            self.takes_tools = "tools" in meta.find_undeclared_variables(environment.parse(source))
            """Whether the template shows tools to the model."""
        except jinja2.TemplateSyntaxError as error:
            raise ModelError(
                f"The chat template does not parse: {error}.", "Correct chat_template in the model's folder."
            ) from error
        self._check_role = cache(self._find_gap)

    def render(self, messages: Sequence[Message], generation_prompt: bool, tools: Sequence[Mapping[str, Any]] | None = None) -> str:
        """The conversation as text; `tools` are JSON schemas as transformers takes them.

        Raises `ModelError` with the template's own words if it rejects the messages.
        """
        conversation = [_plain(message) for message in messages]
        try:
            return self._template.render(
                messages=conversation, add_generation_prompt=generation_prompt, tools=tools or None, documents=None,
                **self._special_tokens,
            )  # fmt: skip
        except (jinja2.TemplateError, TypeError) as error:
            roles = ", ".join(message.role for message in messages)
            raise ModelError(
                f"The chat template rejects messages of roles {roles}: {error}.", "Use roles that it knows."
            ) from error

    def followup_text(self, message: Message) -> str:
        """What follows an assistant's answer: end of turn, `message`, generation prompt.

        Raises `ModelError` if the template would change the text before it.
        """
        gap = self._check_role(message.role)
        history = [Message("user", PROBE_USER), Message("assistant", PROBE_ANSWERS[0])]
        before = self.render(history[:1], generation_prompt=True) + gap + PROBE_ANSWERS[0]
        return self._rest(before, [*history, message], message.role)

    def _find_gap(self, role: str) -> str:
        """White space the template puts before an answer; the model draws it itself. Proves the prefix property for `role`."""
        gaps = {self._probe(role, answer) for answer in PROBE_ANSWERS}
        if len(gaps) != 1:
            _refuse(role)
        return gaps.pop()

    def _probe(self, role: str, answer: str) -> str:
        """Two rounds, so that by induction any number of rounds appends the same text."""
        first = [Message("user", PROBE_USER), Message("assistant", answer), Message(role, PROBE_USER)]
        prompt = self.render(first[:1], generation_prompt=True)
        after_prompt = self._rest(prompt, first, role)
        gap = after_prompt[: len(after_prompt) - len(after_prompt.lstrip())]
        suffix = self._rest(prompt + gap + answer, first, role)
        second = [*first, Message("assistant", answer), Message(role, PROBE_USER)]
        if self.render(second, generation_prompt=True) != prompt + 2 * (gap + answer + suffix):
            _refuse(role)
        return gap

    def _rest(self, before: str, messages: Sequence[Message], role: str) -> str:
        text = self.render(messages, generation_prompt=True)
        if not text.startswith(before):
            _refuse(role)
        return text[len(before) :]


def _plain(message: Message) -> dict[str, Any]:
    """As templates read it. What a message lacks is not there at all: some templates test for its presence."""
    plain: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        plain["tool_calls"] = [_plain_call(call) for call in message.tool_calls]
    return plain | {key: value for key in ("tool_call_id", "name") if (value := getattr(message, key))}


def _plain_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"type": "function", "function": function} | ({"id": call.call_id} if call.call_id else {})


def _refuse(role: str) -> NoReturn:
    raise ModelError(
        f"The chat template rewrites earlier turns when a {role!r} message follows, so sampled tokens could not be kept.",
        "Use a single-turn environment, another role for the follow-up, or a template that keeps history (thoughts included).",
    )


def _environment(now: Callable[[], datetime]) -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, loopcontrols])
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda pattern: now().strftime(pattern)
    return environment


def _to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    """Jinja's own filter escapes HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
