"""Models of dgl_epochs and distdgl_epochs. Import it after the number of threads is set in the environment."""

import torch.nn.functional as F
from common import ALPHA, DEPTH, DROPOUT, HEADS, THETA, WIDTH
from dgl.nn import GATConv, GCN2Conv, GraphConv, SAGEConv
from torch import nn


def layers(graph, convs):
    """Pairs every layer with its graph: with its block of a mini-batch, or with the full graph."""
    return zip(convs, graph if isinstance(graph, list) else [graph] * len(convs))


class Stack(nn.Module):
    """GraphSAGE with LayerNorm, or GCN without a norm."""

    def __init__(self, widths, layer, norm):
        super().__init__()
        self.convs = nn.ModuleList(layer(*pair) for pair in zip(widths, widths[1:]))
        self.norms = nn.ModuleList(norm(width) for width in widths[1:-1])

    def forward(self, graph, x):
        *inner, (last, block) = layers(graph, self.convs)
        for (conv, part), norm in zip(inner, self.norms):
            x = F.dropout(F.relu(norm(conv(part, x))), DROPOUT, self.training)
        return last(block, x)


class Gat(nn.Module):
    """Heads are concatenated between layers and averaged at the end."""

    def __init__(self, widths, heads, mini):
        super().__init__()
        sizes = [width // heads for width in widths[1:-1]] + [widths[-1]]
        self.convs = nn.ModuleList(
            GATConv(inputs, size, heads, allow_zero_in_degree=mini) for inputs, size in zip(widths, sizes))

    def forward(self, graph, x):
        *inner, (last, block) = layers(graph, self.convs)
        for conv, part in inner:
            x = F.dropout(F.elu(conv(part, x).flatten(1)), DROPOUT, self.training)
        return last(block, x).mean(1)


class Gcnii(nn.Module):
    def __init__(self, inputs, classes):
        super().__init__()
        width = WIDTH["gcnii"]
        self.into, self.out = nn.Linear(inputs, width), nn.Linear(width, classes)
        self.convs = nn.ModuleList(
            GCN2Conv(width, layer=k, alpha=ALPHA, lambda_=THETA, bias=False) for k in range(1, DEPTH["gcnii"] + 1))

    def forward(self, graph, x):
        x = first = F.relu(self.into(F.dropout(x, DROPOUT, self.training)))
        for conv in self.convs:
            x = F.relu(conv(graph, F.dropout(x, DROPOUT, self.training), first))
        return self.out(F.dropout(x, DROPOUT, self.training))


def sage(inputs, outputs):
    """Weights begin as in the other tools, so that losses compare; DGL's own are larger and cost some epochs."""
    layer = SAGEConv(inputs, outputs, "mean")
    layer.fc_self.reset_parameters()
    layer.fc_neigh.reset_parameters()
    return layer


def build(model, widths, mini, heads=HEADS):
    """Returns a model with one layer per pair of `widths`, for mini-batches or for the full graph."""
    # mini: a sampler may leave a node without any sampled edge, even without its self-loop
    return {
        "sage": lambda: Stack(widths, sage, nn.LayerNorm),
        "gcn": lambda: Stack(widths, lambda i, o: GraphConv(i, o, allow_zero_in_degree=mini), lambda _: nn.Identity()),
        "gat": lambda: Gat(widths, heads, mini),
        "gcnii": lambda: Gcnii(widths[0], widths[-1]),
    }[model]()
