"""Our binary messages are the SDK's, field by field."""

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from tinker.proto import tinker_public_pb2

from plait.server.wire import tinker_wire_pb2

UNUSED = {"SamplingParams", "StopStrings", "StopTokens"}
"""The SDK defines them and no message of an endpoint holds them."""
OURS, THEIRS = tinker_wire_pb2.DESCRIPTOR, tinker_public_pb2.DESCRIPTOR


def field_facts(field: FieldDescriptor) -> tuple:
    kind = field.message_type or field.enum_type
    oneof = field.containing_oneof.name if field.containing_oneof else ""
    return (field.name, field.number, field.type, field.is_repeated, field.has_presence, oneof, local_name(kind))


def local_name(kind: Descriptor | EnumDescriptor | None) -> str:
    """The name without the package."""
    return kind.full_name.removeprefix(kind.file.package) if kind else ""


def messages(file: object) -> dict[str, Descriptor]:
    nested = {local_name(inner): inner for message in file.message_types_by_name.values() for inner in message.nested_types}  # type: ignore[attr-defined]
    return nested | {local_name(message): message for message in file.message_types_by_name.values()}  # type: ignore[attr-defined]


def test_all_messages_of_the_sdk_are_there() -> None:
    assert set(messages(THEIRS)) - set(messages(OURS)) == {f".{name}" for name in UNUSED}
    assert set(messages(OURS)) <= set(messages(THEIRS))


@pytest.mark.parametrize("name", sorted(messages(OURS)))
def test_fields_are_those_of_the_sdk(name: str) -> None:
    ours, theirs = messages(OURS)[name], messages(THEIRS)[name]
    assert [field_facts(field) for field in ours.fields] == [field_facts(field) for field in theirs.fields]


def test_enumerations_are_those_of_the_sdk() -> None:
    def values(file: object) -> dict[str, list]:
        enums = file.enum_types_by_name.items()  # type: ignore[attr-defined]
        return {name: [(value.name, value.number) for value in enum.values] for name, enum in enums}

    assert values(OURS) == values(THEIRS)
