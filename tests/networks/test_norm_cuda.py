"""BatchNorm by Triton against torch's: on CUDA, or by its interpreter (TRITON_INTERPRET=1) without it."""

import os

import pytest
import torch
from torch.nn import functional as F

pytest.importorskip("triton", reason="Triton is not installed")
if not (torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1"):
    pytest.skip("no CUDA device, and TRITON_INTERPRET=1 is not set", allow_module_level=True)

from hcdc.networks import _norm_cuda

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPES = [(8, 16, 8, 8), (3, 5, 7, 9), (2, 128, 4, 4), (5, 48, 3, 3), (1, 3, 1, 40), (64, 64, 8, 8)]


def drawn(shape, dtype):
    generator = torch.Generator().manual_seed(sum(shape))
    x, upstream = (torch.randn(shape, generator=generator).to(dtype).to(DEVICE) for _ in range(2))
    scale, shift = (torch.randn(shape[1], generator=generator).to(DEVICE) for _ in range(2))
    return (3 * x + 1.5).contiguous(memory_format=torch.channels_last), upstream, scale, shift


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_derivatives_are_those_of_torch_in_float64(shape, dtype):
    x, upstream, scale, shift = drawn(shape, dtype)
    found, expected = [], []
    for results, kind, norm in (
        (found, None, _norm_cuda.batch_norm),
        (expected, torch.float64, lambda *v: F.batch_norm(v[0], None, None, *v[1:], training=True)),
    ):
        leaves = [v.to(kind or v.dtype).detach().requires_grad_() for v in (x, scale, shift)]
        out = norm(*leaves)
        results += [out, *torch.autograd.grad(out, leaves, upstream.to(out.dtype))]
    assert found[0].dtype == found[1].dtype == dtype
    assert found[0].is_contiguous(memory_format=torch.channels_last)
    rough = 4e-3 if dtype == torch.bfloat16 else 2e-5
    for a, b in zip(found, expected):
        error = float((a.double() - b).detach().norm() / b.detach().norm().clamp_min(1e-9))
        assert error < (rough if a.dim() == 4 else 2e-5)


def test_equal_inputs_give_equal_outputs():
    x, _, scale, shift = drawn((64, 16, 8, 8), torch.bfloat16)
    assert torch.equal(_norm_cuda.batch_norm(x, scale, shift), _norm_cuda.batch_norm(x, scale, shift))


def test_second_derivatives_are_refused():
    x, _, scale, shift = drawn((4, 3, 5, 5), torch.float32)
    leaf = x.requires_grad_()
    (slope,) = torch.autograd.grad(
        _norm_cuda.batch_norm(leaf, scale, shift).square().sum(), leaf, create_graph=True
    )
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


@pytest.mark.skipif(DEVICE == "cpu", reason="no CUDA device")
def test_kernels_that_work_are_said_to_work(monkeypatch, caplog):
    assert _norm_cuda.works()
    monkeypatch.setattr(_norm_cuda, "_run", lambda *given: 1 / 0)
    assert not _norm_cuda.works()
    assert "using torch's, which is slower" in caplog.text
