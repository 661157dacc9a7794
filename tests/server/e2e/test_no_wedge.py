"""Calls that go wrong in unusual ways end, and those behind them run: no model waits for ever."""

from typing import Any

from tinker.proto import tinker_public_pb2 as public

from tests.server.e2e.wire import Wire


def save_for_sampler(wire: Wire, model_id: str, seq_id: int, number: int) -> tuple[int, Any]:
    return wire.post("save_weights_for_sampler", model_id=model_id, seq_id=seq_id, sampling_session_seq_id=number)


def test_a_body_that_cannot_be_read_uses_up_its_seq_id(server: Any) -> None:
    wire = Wire(server)
    model_id = wire.model()
    chunk = public.Chunk(image=public.ImageChunk(data=b"no text", format="png"))
    body = public.ForwardBackwardRequest(
        model_id=model_id, seq_id=1, loss_fn="cross_entropy", data=[public.Datum(model_input=[chunk])]
    )
    assert wire.http.post("/forward_backward", content=body.SerializeToString()).status_code == 422
    assert wire.result(wire.optim_step(model_id, 2)[1]["request_id"])["category"] == "user"
    assert wire.forward_backward(model_id, 3)[0] == 200
    assert wire.result(wire.optim_step(model_id, 4)[1]["request_id"])["metrics"]["grad_norm"] > 0


def test_a_sampler_that_exists_already_fails_the_save_alone(server: Any) -> None:
    wire = Wire(server)
    model_id = wire.model()
    taken = save_for_sampler(wire, model_id, 1, number=7)[1]["request_id"]
    assert wire.result(taken)["sampling_session_id"].endswith(":sample:7")
    again = wire.result(save_for_sampler(wire, model_id, 2, number=7)[1]["request_id"])
    assert again["category"] == "user"
    assert ":sample:7" in again["error"]
    assert wire.loss(model_id, 3) > 0


def test_a_repeated_save_with_another_sampler_number_is_the_first_one(server: Any) -> None:
    """The SDK counts its samplers anew when it repeats the request."""
    wire = Wire(server)
    model_id = wire.model()
    first = save_for_sampler(wire, model_id, 1, number=20)[1]["request_id"]
    status, again = save_for_sampler(wire, model_id, 1, number=21)
    assert (status, again["request_id"]) == (200, first)
    assert wire.result(first)["sampling_session_id"].endswith(":sample:20")


def test_an_unloaded_model_takes_no_more_calls(server: Any) -> None:
    wire = Wire(server)
    model_id = wire.model()
    running = wire.forward_backward(model_id, 1)[1]["request_id"]
    assert wire.post("unload_model", model_id=model_id)[0] == 200
    assert wire.optim_step(model_id, 2)[0] == 410
    assert isinstance(wire.result(running), bytes)  # What was asked before runs on.


def test_targets_that_would_fill_the_memory_are_refused(server: Any) -> None:
    wire = Wire(server)
    rows = 5_000_000
    targets = {"data": [], "dtype": "int64", "shape": [rows, 128], "sparse_crow_indices": [0], "sparse_col_indices": []}
    status, content = wire.sample(wire.sampler(), target_prompt_logprobs=targets)
    assert status == 422
    assert "cells" in content["detail"]
