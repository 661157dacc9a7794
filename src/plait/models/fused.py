"""RMS-norm and SwiGLU as one node of autograd each: the bits of the plain operations, and fewer passes over memory backwards."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def rms_norm(x: Tensor, weight_E: Tensor, epsilon: float) -> Tensor:
    """`F.rms_norm` over the last dimension. Differentiable."""
    if not x.requires_grad or x.dtype == torch.float64:
        return F.rms_norm(x, weight_E.shape, weight_E, epsilon)
    normed: Tensor = _RmsNorm.apply(x, weight_E, epsilon)
    return normed


class _RmsNorm(torch.autograd.Function):
    """y = w x r with r = 1 / rms(x), so dx = r (w g - x mean(w g x) r^2) and dw = sum of g x r, computed in float32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_E: Tensor, epsilon: float) -> Tensor:
        normed, inverse = torch.ops.aten._fused_rms_norm.default(x, list(weight_E.shape), weight_E, epsilon)
        ctx.save_for_backward(x, weight_E, inverse)
        return normed

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None]:
        x, weight_E, inverse = ctx.saved_tensors
        scaled, x_32, inverse = torch.mul(gradients[0], weight_E.float()), x.float(), inverse.float()
        to_weight_E = None
        if ctx.needs_input_grad[1]:
            to_weight_E = (gradients[0] * x_32 * inverse).flatten(0, -2).sum(0).to(weight_E.dtype)
        mean = torch.linalg.vecdot(scaled, x_32)[..., None].mul_(inverse.pow(3)).div_(-x.shape[-1])
        return scaled.mul_(inverse).addcmul_(x_32, mean).to(x.dtype), to_weight_E, None


def swiglu(gate_up_RI: Tensor) -> Tensor:
    """silu(gate) x up for gate and up side by side, [R, I] -> [R, I / 2]. Differentiable."""
    if not gate_up_RI.requires_grad:
        gate, up = gate_up_RI.chunk(2, dim=-1)
        return F.silu(gate) * up
    mixed: Tensor = _Swiglu.apply(gate_up_RI)
    return mixed


class _Swiglu(torch.autograd.Function):
    """Derivatives are written side by side at once, where autograd's own would put them together afterwards."""

    @staticmethod
    def forward(ctx: Any, gate_up_RI: Tensor) -> Tensor:
        gate, up = gate_up_RI.chunk(2, dim=-1)
        activated = F.silu(gate)
        ctx.save_for_backward(gate_up_RI, activated)
        return activated * up

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        gate_up_RI, activated = ctx.saved_tensors
        gate, up = gate_up_RI.chunk(2, dim=-1)
        result = torch.empty_like(gate_up_RI)
        to_gate, to_up = result.chunk(2, dim=-1)
        torch.ops.aten.silu_backward.grad_input(gradients[0] * up, gate, grad_input=to_gate)
        torch.mul(gradients[0], activated, out=to_up)
        return result
