import numpy as np
import pytest
import torch
from scipy import sparse
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

from hcdc.core.sparse import SparseMatrix, matmul


def scipy_matrix(rows=7, columns=5, density=0.4, seed=0):
    return sparse.random(rows, columns, density, format="csr", random_state=seed, dtype=np.float64)


def symmetric_matrix(n=6, seed=0):
    a = scipy_matrix(n, n, seed=seed)
    return (a + a.T).tocsr()


def doubles(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.fixture(params=["rectangular", "symmetric", "empty rows"])
def case(request):
    """A matrix and the same, dense."""
    if request.param == "symmetric":
        matrix = symmetric_matrix()
    elif request.param == "empty rows":
        matrix = scipy_matrix().tolil()
        matrix[0] = matrix[3] = 0
        matrix[:, 2] = 0
        matrix = matrix.tocsr()
    else:
        matrix = scipy_matrix()
    made = SparseMatrix.from_scipy(matrix, torch.float64, symmetric=request.param == "symmetric")
    return made, torch.from_numpy(matrix.toarray())


# --- products and derivatives -------------------------------------------------------------------------------


def test_product_with_a_matrix_and_a_vector(case):
    matrix, dense = case
    x = doubles(dense.shape[1], 3)
    close(matrix @ x, dense @ x)
    close(matmul(matrix, x), matmul(dense, x))
    close(matrix @ x[:, 0], dense @ x[:, 0])
    close(matrix.multiply(x), dense @ x)
    close(matrix @ x.t().contiguous().t(), dense @ x)  # columns need not be contiguous
    close(matrix @ doubles(dense.shape[1], 0), doubles(dense.shape[0], 0))


def test_transpose(case):
    matrix, dense = case
    y = doubles(dense.shape[0], 2)
    close(matrix.t() @ y, dense.t() @ y)
    close(matrix.t().to_dense(), dense.t().contiguous())
    assert matrix.t().t() is matrix
    assert matrix.t().shape == (dense.shape[1], dense.shape[0])


def test_gradient(case):
    matrix, dense = case
    x = doubles(dense.shape[1], 3).requires_grad_()
    weight = doubles(dense.shape[0], 3, seed=1)
    (mine,) = torch.autograd.grad((torch.sin(matrix @ x) * weight).sum(), x)
    (oracle,) = torch.autograd.grad((torch.sin(dense @ x) * weight).sum(), x)
    close(mine, oracle)


def test_gradients_against_finite_differences(case):
    matrix, dense = case

    def function(x):
        return torch.tanh(matrix @ (x * x))

    x = doubles(dense.shape[1], 2).requires_grad_()
    assert torch.autograd.gradcheck(function, (x,), check_forward_ad=True, check_batched_grad=False)
    assert torch.autograd.gradgradcheck(function, (x,))


def test_forward_mode(case):
    matrix, dense = case
    x, tangent = doubles(dense.shape[1], 3), doubles(dense.shape[1], 3, seed=1)
    value, slope = jvp(lambda z: torch.sin(matrix @ z), (x,), (tangent,))
    close(value, torch.sin(dense @ x))
    close(slope, torch.cos(dense @ x) * (dense @ tangent))


@pytest.mark.parametrize("in_dim", [0, 1, 2, -1])
@pytest.mark.parametrize("out_dim", [0, 1, 2])
def test_vmap_in_any_dimension(case, in_dim, out_dim):
    matrix, dense = case
    batch = doubles(4, dense.shape[1], 3)
    moved = batch.movedim(0, in_dim)
    close(vmap(lambda z: matrix @ z, in_dim, out_dim)(moved), (dense @ batch).movedim(0, out_dim))


def test_vmap_of_vectors_and_nested(case):
    matrix, dense = case
    close(vmap(lambda z: matrix @ z)(doubles(4, dense.shape[1])), doubles(4, dense.shape[1]) @ dense.t())
    batch = doubles(2, 3, dense.shape[1], 4)
    close(vmap(vmap(lambda z: matrix @ z), in_dims=0)(batch), dense @ batch)
    close(vmap(vmap(lambda z: matrix @ z), 1, 1)(batch), dense @ batch)


def test_all_lanes_of_any_depth_reach_one_call(monkeypatch):
    matrix = SparseMatrix.from_scipy(scipy_matrix(), torch.float64)
    seen = []
    multiply = SparseMatrix.multiply
    monkeypatch.setattr(
        SparseMatrix, "multiply", lambda self, z: seen.append(tuple(z.shape)) or multiply(self, z)
    )
    vmap(vmap(lambda z: matrix @ z))(doubles(2, 3, 5, 4))
    assert seen == [(6, 5, 4)]
    seen.clear()
    vmap(grad(lambda z: (matrix @ z).square().sum()))(doubles(3, 5, 4))
    assert seen == [(3, 5, 4), (3, 7, 4)]


def test_a_batch_of_matrices_without_vmap(case):
    matrix, dense = case
    batch = doubles(4, dense.shape[1], 3)
    close(matrix @ batch, dense @ batch)
    close(matrix @ batch.movedim(0, 2).contiguous().movedim(2, 0), dense @ batch)
    close(matrix @ batch[:, :, :0], (dense @ batch)[:, :, :0])
    close(matrix @ batch[:0], (dense @ batch)[:0])
    assert torch.autograd.gradcheck(lambda z: matrix @ z, (batch[:2].requires_grad_(),))
    assert torch.autograd.gradgradcheck(lambda z: (matrix @ z).sin(), (batch[:2].requires_grad_(),))


def test_vmap_of_grad_and_grad_of_vmap(case):
    matrix, dense = case
    batch = doubles(4, dense.shape[1], 3)

    def loss(a, z):
        return torch.logsumexp(a @ torch.sin(z), 0).sum()

    close(vmap(grad(lambda z: loss(matrix, z)))(batch), vmap(grad(lambda z: loss(dense, z)))(batch))
    total = grad(lambda zs: vmap(lambda z: loss(matrix, z))(zs).square().sum())(batch)
    close(total, grad(lambda zs: vmap(lambda z: loss(dense, z))(zs).square().sum())(batch))


def test_hessian_and_jacobians(case):
    matrix, dense = case

    def loss(a, z):
        return torch.logsumexp(a @ torch.sin(z), 0)

    z = doubles(dense.shape[1])
    oracle = hessian(lambda v: loss(dense, v))(z)
    close(hessian(lambda v: loss(matrix, v))(z), oracle)
    close(jacfwd(jacrev(lambda v: loss(matrix, v)))(z), oracle)
    close(jacrev(jacfwd(lambda v: loss(matrix, v)))(z), oracle)
    close(jacrev(lambda v: matrix @ v)(z), dense)
    close(jacfwd(lambda v: matrix @ v)(z), dense)


def test_vmap_of_hessian_products(case):
    """What hypergradients do: a linearised gradient applied to many vectors, for a batch of points."""
    matrix, dense = case
    points, directions = doubles(3, dense.shape[1], 2), doubles(3, dense.shape[1], 2, seed=1)

    def product(a):
        def one(z, v):
            _, pull = vjp(grad(lambda u: torch.logsumexp((a @ torch.tanh(u)).flatten(), 0)), z)
            return pull(v)[0]

        return vmap(one)(points, directions)

    close(product(matrix), product(dense))


def test_the_matrix_itself_is_a_constant():
    matrix = SparseMatrix.from_scipy(scipy_matrix(), torch.float64)
    x = doubles(5, 2)
    assert not (matrix @ x).requires_grad
    assert (matrix @ x.requires_grad_()).requires_grad
    assert not matrix.values.requires_grad


# --- making and cutting -------------------------------------------------------------------------------------


def test_duplicates_are_added_zeros_dropped_and_indices_sorted():
    rows, columns, values = [0, 0, 0, 1, 1, 2], [2, 0, 2, 1, 1, 0], [1.0, 2.0, 3.0, 4.0, -4.0, 0.0]
    source = sparse.coo_matrix((values, (rows, columns)), shape=(3, 3))
    matrix = SparseMatrix.from_scipy(source, torch.float64)
    assert matrix.indptr.tolist() == [0, 2, 2, 2]
    assert matrix.indices.tolist() == [0, 2]
    assert matrix.values.tolist() == [2.0, 4.0]
    assert matrix.nnz == matrix.t().nnz == 2
    assert source.nnz == 6  # the source is left alone


@pytest.mark.parametrize("make", [sparse.csr_matrix, sparse.csc_matrix, sparse.coo_array, sparse.lil_matrix])
def test_any_scipy_format(make):
    dense = scipy_matrix().toarray()
    close(SparseMatrix.from_scipy(make(dense), torch.float64).to_dense(), torch.from_numpy(dense))


def test_round_trip_through_scipy(case):
    matrix, dense = case
    assert np.array_equal(matrix.to_scipy().toarray(), dense.numpy())


def test_a_symmetric_matrix_is_its_own_transpose():
    matrix = SparseMatrix.from_scipy(symmetric_matrix(), torch.float64, symmetric=True)
    assert matrix.t() is matrix
    assert matrix.to(dtype=torch.float32).t() is not matrix
    assert matrix.to(dtype=torch.float32).symmetric


def test_rows_in_the_order_given(case):
    matrix, dense = case
    index = torch.tensor([4, 0, 4, 3])
    picked = matrix.rows(index)
    close(picked.to_dense(), dense[index])
    assert not picked.symmetric
    x = doubles(dense.shape[1], 2).requires_grad_()
    (mine,) = torch.autograd.grad((picked @ x).sin().sum(), x)
    (oracle,) = torch.autograd.grad((dense[index] @ x).sin().sum(), x)
    close(mine, oracle)


@pytest.mark.parametrize("symmetric", [True, False])
def test_submatrix(symmetric):
    source = symmetric_matrix() if symmetric else scipy_matrix(6, 6)
    matrix = SparseMatrix.from_scipy(source, torch.float64, symmetric)
    index = torch.tensor([5, 1, 3])
    part = matrix.submatrix(index)
    oracle = torch.from_numpy(source.toarray())[index][:, index]
    close(part.to_dense(), oracle)
    close(part.t().to_dense(), oracle.t().contiguous())
    assert part.symmetric is symmetric
    assert part.submatrix(torch.tensor([], dtype=torch.long)).shape == (0, 0)


def test_to_another_precision(case):
    matrix, dense = case
    single = matrix.to(dtype=torch.float32)
    assert single.dtype == single.t().dtype == torch.float32
    assert matrix.dtype == torch.float64
    assert matrix.to("cpu", torch.float64) is matrix
    assert matrix.to() is matrix
    x = doubles(dense.shape[1], 2).float().requires_grad_()
    product = single @ x
    assert product.dtype == torch.float32
    torch.testing.assert_close(product, dense.float() @ x)
    (gradient,) = torch.autograd.grad(product.sum(), x)
    torch.testing.assert_close(gradient, dense.float().sum(0)[:, None].expand(-1, 2))


def test_repr_and_properties():
    matrix = SparseMatrix.from_scipy(scipy_matrix())
    assert matrix.dtype == torch.float32
    assert matrix.device == torch.device("cpu")
    assert repr(matrix) == "SparseMatrix(shape=(7, 5), nnz=14, dtype=torch.float32, device=cpu)"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("columns", [1, 7, 64, 3000])
def test_gpu_products_are_those_of_the_cpu(dtype, columns):
    source = scipy_matrix(200, 150, 0.05)
    matrix = SparseMatrix.from_scipy(source, dtype).to("cuda")
    dense = torch.from_numpy(source.toarray()).to(dtype)
    x = doubles(150, columns).to(dtype)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close((matrix @ x.cuda()).cpu(), dense @ x, **tolerance)
    torch.testing.assert_close((matrix.t() @ (dense @ x).cuda()).cpu(), dense.t() @ (dense @ x), **tolerance)
    batch = doubles(3, 150, columns).to(dtype)
    torch.testing.assert_close((matrix @ batch.cuda()).cpu(), dense @ batch, **tolerance)
    product = vmap(lambda z: matrix @ z, 1)(batch.movedim(0, 1).cuda())
    torch.testing.assert_close(product.cpu(), dense @ batch, **tolerance)
    assert matrix.to("cuda") is matrix


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_polynomial_is_that_of_the_dense_matrix(symmetric):
    matrix = symmetric_matrix() if symmetric else scipy_matrix(6, 6)
    made = SparseMatrix.from_scipy(matrix, torch.float64, symmetric)
    dense = torch.from_numpy(matrix.toarray())
    c, z, g = doubles(3, 4, seed=1), doubles(3, 6, 2, seed=2).requires_grad_(), doubles(3, 6, 2, seed=3)
    powers = torch.stack([torch.linalg.matrix_power(dense, k) for k in range(4)])
    wanted = torch.einsum("bk,kij,bjf->bif", c, powers, z)
    found = made.polynomial(c, z)
    close(found, wanted)
    close(*(torch.autograd.grad((out * g).sum(), z)[0] for out in (found, wanted)))
