"""Log lines are whole JSON objects that carry what was noted, and never a key."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from plait.server.keys import make_key
from plait.server.logs import HTTP_LOGGER, begin, note, noted_fields, set_up_logging


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, http_level = root.handlers[:], root.level, logging.getLogger(HTTP_LOGGER).level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger(HTTP_LOGGER).setLevel(http_level)


def lines_of(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_lines_carry_what_was_noted() -> None:
    stream = io.StringIO()
    set_up_logging("json", stream)
    begin(request_id="r1")
    note(tenant="acme", model_id=None)
    logging.getLogger("plait.server").info("two\nlines and %d", 7, extra={"fields": {"status": 200}})
    (line,) = lines_of(stream)
    assert line["message"] == "two\nlines and 7"
    assert (line["level"], line["logger"], line["request_id"], line["tenant"], line["status"]) == (
        "info", "plait.server", "r1", "acme", 200,
    )  # fmt: skip
    assert line["time"].endswith("+00:00")
    assert "model_id" not in line


def test_an_exception_stays_on_its_line() -> None:
    stream = io.StringIO()
    set_up_logging("json", stream)
    try:
        raise ValueError("no good")
    except ValueError:
        logging.getLogger("plait.server").exception("failed")
    (line,) = lines_of(stream)
    assert "ValueError: no good" in line["exception"]


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_no_key_is_written(log_format: Any) -> None:
    stream = io.StringIO()
    set_up_logging(log_format, stream)
    key_id, key = make_key()
    try:
        raise ValueError(key)
    except ValueError:
        logging.getLogger("plait.server").exception("got %s", key, extra={"fields": {"header": key}})
    assert key not in stream.getvalue()
    assert key.removeprefix(f"tml-{key_id}-") not in stream.getvalue()
    assert f"tml-{key_id}-***" in stream.getvalue()


def test_text_leaves_out_requests_that_went_well() -> None:
    stream = io.StringIO()
    set_up_logging("text", stream)
    logging.getLogger(HTTP_LOGGER).info("GET / 200")
    logging.getLogger(HTTP_LOGGER).warning("GET / 404")
    assert "200" not in stream.getvalue()
    assert "GET / 404" in stream.getvalue()


def test_what_begins_forgets_what_was_before() -> None:
    begin(request_id="old")
    begin(call="new")
    assert noted_fields() == {"call": "new"}
