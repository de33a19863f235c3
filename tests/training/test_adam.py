import pytest
import torch

from hcdc.training import Adam, _adam


def compare_with_torch(weight_decay, transposed):
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    own, other = start.clone(), start.clone().requires_grad_()
    adam = Adam({"x": own}, 0.02, weight_decay)
    reference = torch.optim.Adam([other], lr=0.02, weight_decay=weight_decay)
    for _ in range(20):
        gradient = torch.randn(4, 3, generator=generator, dtype=torch.float64)
        gradient = gradient.t().contiguous().t() if transposed else gradient
        adam.step(gradient)
        other.grad = gradient.clone()
        reference.step()
    torch.testing.assert_close(own, other.detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_equals_torch(weight_decay, transposed):
    """Also with gradients whose memory has another order than the tensor's."""
    compare_with_torch(weight_decay, transposed)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_equals_torch_on_a_device_without_the_fused_step(monkeypatch, weight_decay):
    monkeypatch.setattr(_adam, "FUSED", frozenset())
    monkeypatch.setattr(torch, "_fused_adam_", None)  # a call would fail
    compare_with_torch(weight_decay, False)


def test_equals_torch_where_torch_has_no_fused_step(monkeypatch):
    monkeypatch.delattr(torch, "_fused_adam_")
    compare_with_torch(0.1, False)


def test_gradients_are_asked_for_inside_the_block_only():
    tensor = torch.ones(2)
    adam = Adam({"x": tensor}, 0.1)
    with adam.differentiated() as tensors:
        assert tensors[0] is tensor
        assert tensor.requires_grad
    assert not tensor.requires_grad
