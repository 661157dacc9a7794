"""A tiny model whose chat template shows tools, as Qwen's does."""

from pathlib import Path

from plait.models.tiny import make_tiny_model

TOOL_TEMPLATE = (
    "{% if tools %}<|im_start|>system\nTools: {% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% if message.tool_calls %}{% for call in message.tool_calls %}"
    '<tool_call>{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}</tool_call>'
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_tool_model(folder: Path) -> Path:
    make_tiny_model(folder)
    (folder / "chat_template.jinja").write_text(TOOL_TEMPLATE)
    return folder
