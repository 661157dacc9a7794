"""Results of forward_backward, read by the SDK."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tinker.lib.chunked_fwdbwd_helpers import combine_fwd_bwd_output_results
from tinker.proto.response_conv import deserialize_forward_backward_output

from plait.server.wire import tinker_wire_pb2 as wire
from plait.server.wire.results import encode_forward_backward_output

ARRAYS = hnp.arrays(np.float32, st.one_of(st.tuples(st.integers(1, 5)), st.tuples(st.integers(1, 4), st.integers(1, 3))))


@given(st.lists(ARRAYS, max_size=6), st.floats(allow_nan=False))
def test_the_sdk_reads_every_datum_in_order(arrays: list[np.ndarray], loss: float) -> None:
    output = deserialize_forward_backward_output(encode_forward_backward_output(arrays, {"loss": loss}))
    assert output.loss_fn_output_type == "ArrayRecord"
    assert output.metrics == {"loss:sum": loss}
    assert len(output.loss_fn_outputs) == len(arrays)
    for found, array in zip(output.loss_fn_outputs, arrays, strict=True):
        assert (found["logprobs"].dtype, found["logprobs"].shape) == ("float32", list(array.shape))
        np.testing.assert_array_equal(found["logprobs"].to_numpy(), array)


def test_records_say_how_many_datums_they_hold() -> None:
    arrays = [np.zeros(2, np.float32), np.zeros(3, np.float32), np.zeros((2, 4), np.float32)]
    output = wire.ForwardBackwardOutput.FromString(encode_forward_backward_output(arrays, {"loss": 0.0}))
    assert [record.num_datums for record in output.loss_fn_outputs] == [2, 1]


def test_the_sdk_combines_the_chunks_of_a_call() -> None:
    metrics = [
        {"loss": 1.5, "num_tokens:sum": 3, "ratio:mean": 1.0, "top:max": 2.0},
        {"loss": 2.0, "num_tokens": 4, "ratio:mean": 3.0},
    ]
    chunks = [
        deserialize_forward_backward_output(encode_forward_backward_output([np.zeros(2, np.float32)] * 2, one)) for one in metrics
    ]
    combined = combine_fwd_bwd_output_results(chunks)
    assert combined.metrics == {"loss:sum": 3.5, "num_tokens:sum": 7.0, "ratio:mean": 2.0}
    assert len(combined.loss_fn_outputs) == 4


@pytest.mark.parametrize("metrics", [{}, {"num_tokens": 1.0}, {"loss": 1.0, "a:b:sum": 1.0}, {"loss": 1.0, "a:median": 1.0}])
def test_metrics_that_the_sdk_would_choke_on_are_an_error(metrics: dict) -> None:
    with pytest.raises(ValueError, match="metric"):
        encode_forward_backward_output([], metrics)
