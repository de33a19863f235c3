import pytest
import torch

from hcdc.condensers import _product
from hcdc.condensers._product import product


@pytest.mark.parametrize("onednn", [False, _product.ONEDNN])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_the_product_in_float64(monkeypatch, onednn, dtype):
    monkeypatch.setattr(_product, "ONEDNN", onednn)
    a, b, plus = (torch.randn(*shape, dtype=torch.float64) for shape in ((9, 300), (300, 7), (7,)))
    tolerance = 1e-4 if dtype == torch.float32 else 1e-11
    for left, right, wanted in ((a, b, a @ b), (b.t(), a.t(), (a @ b).t())):  # rows and columns in memory
        found = product(left.to(dtype), right.to(dtype))
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), wanted, rtol=0, atol=tolerance)
    found = product(a.to(dtype), b.to(dtype), plus.to(dtype))
    torch.testing.assert_close(found.double(), a @ b + plus, rtol=0, atol=tolerance)
