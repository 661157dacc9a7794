"""Tools and their calls in chat templates."""

import pytest

from plait.models.chat_template import ChatTemplate
from plait.models.tiny import CHAT_TEMPLATE
from plait.types.messages import Message, ToolCall
from tests.server.openai.tool_model import TOOL_TEMPLATE

TOOLS = [{"type": "function", "function": {"name": "add", "description": "Größe <b>"}}]


def test_tools_are_shown_as_json_where_the_template_knows_them() -> None:
    template = ChatTemplate(TOOL_TEMPLATE, {})
    assert template.takes_tools
    text = template.render([Message("user", "hi")], generation_prompt=True, tools=TOOLS)
    assert '{"name": "add", "description": "Größe <b>"}' in text
    assert not ChatTemplate(CHAT_TEMPLATE, {}).takes_tools
    assert "Tools" not in template.render([Message("user", "hi")], generation_prompt=True)


def test_calls_of_tools_are_rendered_from_the_assistants_message() -> None:
    message = Message("assistant", "", (ToolCall("add", {"a": 1}, "call-1"),))
    text = ChatTemplate(TOOL_TEMPLATE, {}).render([Message("user", "hi"), message], generation_prompt=False)
    assert '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>' in text


@pytest.mark.parametrize(
    ("field", "expected"), [("tool_call_id", "call-1"), ("name", "add"), ("tool_calls", "absent"), ("other", "absent")]
)
def test_what_a_message_lacks_is_not_there_at_all(field: str, expected: str) -> None:
    template = ChatTemplate("{{ messages[0].get('" + field + "', 'absent') }}", {})
    message = Message("tool", "3", tool_call_id="call-1", name="add")
    assert template.render([message], generation_prompt=False) == expected
