"""GCond the plain way, as the oracle of tests and the rival of the benchmark.

Every pair of nodes is concatenated for the adjacency's MLP; the adjacency is made again for the inner loop;
each class has a forward pass of its own on both graphs; gradients come from automatic differentiation, twice
for the synthetic ones.
"""

import torch
from torch import nn
from torch.nn import functional as F


class PlainPGE(nn.Module):
    """The adjacency's MLP on concatenated pairs."""

    def __init__(self, features, hidden):
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(2 * features, hidden),
            nn.BatchNorm1d(hidden, track_running_stats=False),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.BatchNorm1d(hidden, track_running_stats=False),
            nn.ReLU(),
            nn.Linear(hidden, 1),
        )

    @torch.no_grad()
    def take(self, params):
        """Take the weights of `hcdc.condensers._pge.init_pge`."""
        first, norm1, _, middle, norm2, _, out = self.mlp
        first.weight.copy_(torch.cat([params["left"], params["right"]]).t())
        middle.weight.copy_(params["middle"].t())
        out.weight.copy_(params["out"][None])
        out.bias.copy_(params["bias"])
        norm1.weight.copy_(params["scale1"])
        norm1.bias.copy_(params["shift1"])
        norm2.weight.copy_(params["scale2"])
        norm2.bias.copy_(params["shift2"])
        return self

    def forward(self, x):
        n = len(x)
        i, j = torch.cartesian_prod(torch.arange(n), torch.arange(n)).t()
        pairs = self.mlp(torch.cat([x[i], x[j]], 1)).view(n, n)
        adj = torch.sigmoid((pairs + pairs.t()) / 2)
        return adj - torch.diag(torch.diagonal(adj))


def plain_normalise(adj):
    loops = adj + torch.eye(len(adj), dtype=adj.dtype)
    scale = loops.sum(1).pow(-0.5)
    return torch.diag(scale) @ loops @ torch.diag(scale)


class PlainSGC(nn.Module):
    """P^K X W + b, propagation after the weight."""

    def __init__(self, layer, hops):
        super().__init__()
        self.weight, self.bias = nn.Parameter(layer[:, :-1].t().clone()), nn.Parameter(layer[:, -1].clone())
        self.hops = hops

    def forward(self, x, p):
        z = x @ self.weight
        for _ in range(self.hops):
            z = p @ z
        return z + self.bias


def plain_distance(synthetic, real):
    total = 0.0
    for s, r in zip(synthetic, real):
        if s.dim() == 2:
            for column in range(s.shape[1]):
                a, b = s[:, column], r[:, column]
                total = total + 1 - (a * b).sum() / (a.norm() * b.norm() + 1e-6)
    return total


def plain_matching(model, x, p, y, original_x, original_p, original_y, original_index):
    """The distance of one outer step: classes one after another, each with forward passes of its own."""
    parameters = list(model.parameters())
    counts = y.bincount().double()
    total = 0.0
    for c in range(len(counts)):
        of_class = original_index[original_y == c]
        loss = F.cross_entropy(model(original_x, original_p)[of_class], torch.full((len(of_class),), c))
        real = [g.detach() for g in torch.autograd.grad(loss, parameters)]
        loss = F.cross_entropy(model(x, p)[y == c], y[y == c])
        synthetic = torch.autograd.grad(loss, parameters, create_graph=True)
        total = total + counts[c] / counts.max() * plain_distance(synthetic, real)
    return total


def plain_epoch(reducer, x, pge, feature_optimiser, pge_optimiser, layer, y, original, step_structure):
    """One epoch; ``original`` is ``(x, p, y, index)`` of the original graph. Returns the mean distance."""
    model = PlainSGC(layer, reducer.hops)
    network_optimiser = torch.optim.Adam(model.parameters(), lr=reducer.lr_model)
    total = 0.0
    for step in range(reducer.outer):
        distance = plain_matching(model, x, plain_normalise(pge(x)), y, *original)
        feature_optimiser.zero_grad()
        pge_optimiser.zero_grad()
        distance.backward()
        (pge_optimiser if step_structure else feature_optimiser).step()
        total += distance.item()
        if step == reducer.outer - 1:
            break
        with torch.no_grad():
            p = plain_normalise(pge(x))
        for _ in range(reducer.inner):
            network_optimiser.zero_grad()
            F.cross_entropy(model(x.detach(), p), y).backward()
            network_optimiser.step()
    return total / reducer.outer
