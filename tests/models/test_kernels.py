"""A row's bits depend on the row alone; gradients are those of plain products; machines without oneDNN get the plain form."""

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from plait.models import kernels
from plait.models.kernels import ChunkedLinear, PackedLinear, PlainLinear, grouped_product, make_linear, pad_rows, product

DTYPES = st.sampled_from([torch.float32, torch.bfloat16])
NUM_INPUTS = st.sampled_from([64, 128, 256, 320, 576, 1536])
NUM_OUTPUTS = st.sampled_from([128, 192, 320, 960])
CPU = torch.device("cpu")

pytestmark = pytest.mark.skipif(not kernels.has_onednn(torch.bfloat16), reason="no oneDNN in bfloat16 here: nothing is promised")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@settings(max_examples=40)
@given(dtype=DTYPES, inputs=NUM_INPUTS, outputs=NUM_OUTPUTS, rows=st.integers(1, 70), has_bias=st.booleans())
def test_linear_gives_a_row_the_same_bits_in_any_batch(
    dtype: torch.dtype, inputs: int, outputs: int, rows: int, has_bias: bool
) -> None:
    weight, bias = random(outputs, inputs, dtype=dtype), random(outputs, dtype=dtype, seed=1) if has_bias else None
    x = random(80, inputs, dtype=dtype, seed=2)
    trainer, engine = make_linear(weight, bias, prepack=False), make_linear(weight, bias, prepack=True)
    expected = trainer(x)
    assert torch.equal(engine(x), expected)
    assert torch.equal(engine(x[:rows]), expected[:rows])
    assert torch.equal(trainer(x[-rows:]), expected[-rows:])


@settings(max_examples=40)
@given(
    dtype=DTYPES, groups=st.integers(1, 9), rows=st.integers(2, 33), inputs=st.sampled_from([16, 32, 64, 256, 576, 1536]),
    outputs=NUM_OUTPUTS, extra=st.sampled_from([0, 16, 96]),
)  # fmt: skip
def test_grouped_product_gives_a_row_the_bits_it_has_alone(
    dtype: torch.dtype, groups: int, rows: int, inputs: int, outputs: int, extra: int
) -> None:
    x, weight = random(groups, rows, inputs, dtype=dtype), random(groups, inputs, outputs, dtype=dtype, seed=1)
    # Trailing zeros among the inputs and more outputs change nothing.
    padded = F.pad(x, (0, extra)) if inputs <= kernels.INPUT_CHUNK else x
    wide = F.pad(weight, (0, extra, 0, padded.shape[-1] - inputs))
    together = grouped_product(padded, wide)[..., :outputs]
    for group in range(groups):
        assert torch.equal(together[group], product(x[group], weight[group]))
    assert torch.equal(product(x[0, :1], weight[0]), together[0, :1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("inputs", "outputs"), [(576, 960), (576, 3072), (1536, 576)])
def test_products_are_right(dtype: torch.dtype, inputs: int, outputs: int) -> None:
    weight, x = random(outputs, inputs, dtype=dtype), random(13, inputs, dtype=dtype, seed=1)
    expected = x.double() @ weight.double().T
    tolerance = 1e-4 if dtype == torch.float32 else 0.5
    for found in (make_linear(weight, None, True)(x), make_linear(weight, None, False)(x), product(x, weight.T.contiguous())):
        torch.testing.assert_close(found.double(), expected, atol=tolerance, rtol=0.01)


@pytest.mark.parametrize("outputs", [32, 300])
def test_gradients_are_those_of_a_plain_product(outputs: int) -> None:
    weight, bias, x = random(outputs, 100), random(outputs, seed=1), random(7, 100, seed=2)
    up = random(7, outputs, seed=3)
    plain, ours = x.clone().requires_grad_(), x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(F.linear(plain, weight, bias), plain, up)
    (found,) = torch.autograd.grad(make_linear(weight, bias, prepack=False)(ours), ours, up)
    torch.testing.assert_close(found, expected)


def test_grouped_product_has_gradients_for_both() -> None:
    x, weight = random(2, 3, 600).double().requires_grad_(), random(2, 600, 4, seed=1).double().requires_grad_()
    assert torch.autograd.gradcheck(grouped_product, (x[..., :5], weight[:, :5]))
    found = torch.autograd.grad(grouped_product(x.float(), weight.float()).sum(), (x, weight))
    expected = torch.autograd.grad((x @ weight).sum(), (x, weight))
    for ours, plain in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, plain, atol=1e-4, rtol=1e-4)


def test_one_thread_and_two_give_the_same_bits() -> None:
    x, weight = random(256, 1536), random(576, 1536, seed=1)
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append([make_linear(weight, None, True)(x), product(x, weight.T.contiguous()[:, :48].contiguous())])
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))


def test_rows_are_padded_on_cpu_only() -> None:
    assert pad_rows(random(5, 3)).shape == (8, 3)
    whole = random(8, 3)
    assert pad_rows(whole) is whole
    assert pad_rows(torch.empty(5, 3, device="meta")).shape == (5, 3)


def test_kinds_of_linear() -> None:
    assert isinstance(make_linear(random(64, 64), None, True), ChunkedLinear)
    assert isinstance(make_linear(random(640, 64), None, True), PackedLinear)
    assert isinstance(make_linear(random(640, 64), None, False), PlainLinear)
    assert isinstance(make_linear(random(64, 64, dtype=torch.bfloat16), None, True), PackedLinear)
    assert not kernels.has_onednn(torch.float64)
    assert not kernels.uses_onednn(torch.float32, torch.device("meta"))


@pytest.mark.parametrize("missing", ["the library", "the operator", "the instructions"])
def test_without_onednn_the_plain_form_is_taken(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Tensor:
        raise RuntimeError("mkldnn: bf16 path needs the cpu support avx512bw, avx512vl and avx512dq")

    if missing == "the library":
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    elif missing == "the operator":
        monkeypatch.setattr(torch.ops, "mkldnn", object())
    else:
        monkeypatch.setattr(kernels, "onednn", refuse)
    kernels.has_onednn.cache_clear()
    try:
        assert not kernels.uses_onednn(torch.bfloat16, CPU)
        assert not kernels.uses_onednn(torch.float32, CPU)
        weight, x = random(640, 64), random(3, 64, seed=1)
        torch.testing.assert_close(make_linear(weight, None, prepack=False)(x), F.linear(x, weight))
    finally:
        monkeypatch.undo()
        kernels.has_onednn.cache_clear()
