#!/usr/bin/env python3
"""Write the fixtures of crates/train/tests/it/parity.rs: what PyTorch and PyG compute for small models.

    pip install torch==2.15.0 torch_geometric==2.8.1 numpy==2.4.6 safetensors==0.7.0
    python scripts/parity.py [CASE…]    # rewrites crates/train/tests/parity/CASE.safetensors, without CASE all of them

One file per case, in float64. State of crates/nn reads floats only, so integers are stored as floats too:

    data.adjacency  nodes x nodes, row v marks the in-neighbours of v; the last node is alone
    data.edge_weights    nodes x nodes, weights of the edges (cases *_weighted)
    data.features   nodes x inputs
    data.labels     nodes (classes), or nodes x classes (0 or 1)
    data.rows       the rows the loss is over
    data.weights    class weights: `weight` of cross_entropy, `pos_weight` of binary_cross_entropy_with_logits; may be absent
    initial.*       the state dict before training
    logits          in evaluation, before training
    gradient.*      of the first training loss, a tensor a parameter
    losses          before each of STEPS steps of Adam
    final.*         the state dict after them, running statistics included
    final_logits    in evaluation, after them

The case optimizer_f32 holds steps of Adam and AdamW that PyTorch took in single precision:

    gradients       STEPS x SIZE
    adam, adamw     SIZE parameters after each step, which were zero before the first
"""

import sys
from importlib.metadata import version
from pathlib import Path

PINNED = {"torch": "2.15.0", "torch_geometric": "2.8.1", "numpy": "2.4.6", "safetensors": "0.7.0"}
for package, wanted in PINNED.items():
    if (found := version(package).split("+")[0]) != wanted:
        sys.exit(f"parity.py: {package} {found} is installed, but {wanted} is needed: pip install {package}=={wanted}")

import torch
import torch.nn.functional as F
from safetensors.numpy import save_file
from torch import nn
from torch_geometric.nn import MLP, GCN2Conv, MessagePassing, SAGEConv
from torch_geometric.nn.models import GAT, GCN, GIN, DeepGCNLayer, GraphSAGE
from torch_geometric.nn.norm import LayerNorm
from torch_geometric.utils import scatter

NODES, INPUTS, HIDDEN, CLASSES, LAYERS = 20, 6, 8, 3, 3
STEPS = 10
SIZE = 200  # of the parameter in optimizer_f32
FIRST_WEIGHTED = 19  # seed of the first case with edge weights
FIXTURES = Path(__file__).resolve().parent.parent / "crates/train/tests/parity"


class DenseEnd(nn.Module):
    """GraphSAGE whose last layer is dense."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([SAGEConv(INPUTS, HIDDEN), SAGEConv(HIDDEN, HIDDEN)])
        self.norms = nn.ModuleList(LayerNorm(HIDDEN, mode="node") for _ in self.convs)
        self.lins = nn.ModuleList([nn.Linear(HIDDEN, CLASSES)])

    def forward(self, x, edge_index):
        for conv, norm in zip(self.convs, self.norms):
            x = norm(conv(x, edge_index)).relu()
        return self.lins[0](x)


class WeightedMeanConv(MessagePassing):
    """SAGEConv with the mean Σ w x / Σ w; 0 if all weights are 0."""

    def __init__(self, inputs, outputs):
        super().__init__(aggr="sum")
        self.lin_l = nn.Linear(inputs, outputs)
        self.lin_r = nn.Linear(inputs, outputs, bias=False)

    def forward(self, x, edge_index, edge_weight):
        sums = self.propagate(edge_index, x=x, edge_weight=edge_weight)
        total = scatter(edge_weight, edge_index[1], dim_size=x.size(0), reduce="sum")
        means = torch.where(total > 0, 1 / total.clamp(min=1e-30), 0).view(-1, 1) * sums
        return self.lin_l(means) + self.lin_r(x)

    def message(self, x_j, edge_weight):
        return edge_weight.view(-1, 1) * x_j


class WeightedSumConv(MessagePassing):
    """GINConv with the sum Σ w x and trained ε."""

    def __init__(self, mlp):
        super().__init__(aggr="sum")
        self.nn, self.eps = mlp, nn.Parameter(torch.zeros(1))

    def forward(self, x, edge_index, edge_weight):
        return self.nn((1 + self.eps) * x + self.propagate(edge_index, x=x, edge_weight=edge_weight))

    def message(self, x_j, edge_weight):
        return edge_weight.view(-1, 1) * x_j


class WeightedSage(GraphSAGE):
    supports_edge_weight = True

    def init_conv(self, inputs, outputs, **options):
        return WeightedMeanConv(inputs, outputs)


class WeightedGin(GIN):
    supports_edge_weight = True

    def init_conv(self, inputs, outputs, **options):
        mlp = MLP([inputs, outputs, outputs], act=self.act, act_first=self.act_first, norm=self.norm)
        return WeightedSumConv(mlp)


class Gcnii(nn.Module):
    """The layers and their order in PyG's example gcn2_cora.py."""

    def __init__(self):
        super().__init__()
        self.lins = nn.ModuleList([nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, CLASSES)])
        self.convs = nn.ModuleList(GCN2Conv(HIDDEN, alpha=0.1, theta=0.5, layer=i + 1) for i in range(LAYERS))

    def forward(self, x, edge_index, edge_weight=None):
        x = first = self.lins[0](x).relu()
        for conv in self.convs:
            x = conv(x, first, edge_index, edge_weight).relu()
        return self.lins[1](x)


class ResGcn(nn.Module):
    """ResGCN+ around SAGEConv, in the order of PyG's examples of DeeperGCN: the first block's norm comes last."""

    def __init__(self, conv=SAGEConv):
        super().__init__()
        self.conv = conv
        self.node_encoder = nn.Linear(INPUTS, HIDDEN)
        self.layers = nn.ModuleList(self.block() for _ in range(LAYERS))
        self.lin = nn.Linear(HIDDEN, CLASSES)

    def block(self):
        return DeepGCNLayer(self.conv(HIDDEN, HIDDEN), nn.LayerNorm(HIDDEN), nn.ReLU(), block="res+")

    def forward(self, x, *edges):
        x = self.layers[0].conv(self.node_encoder(x), *edges)
        for layer in self.layers[1:]:
            x = layer(x, *edges)
        return self.lin(self.layers[0].act(self.layers[0].norm(x)))


def stack(model, **options):
    return lambda: model(INPUTS, HIDDEN, LAYERS, CLASSES, **options)


CASES = {
    "gcn": stack(GCN),
    "sage": stack(GraphSAGE),
    "gat": stack(GAT, heads=2, act="elu"),
    "sage_layer_norm": stack(GraphSAGE, norm="LayerNorm", norm_kwargs={"mode": "node"}),
    "sage_batch_norm": stack(GraphSAGE, norm="BatchNorm"),
    "sage_dense_end": DenseEnd,
    "gcnii": Gcnii,
    "resgcn": ResGcn,
    "gcn_multi_label": stack(GCN),
    "gcn_directed": stack(GCN),
    "gat_directed": stack(GAT, heads=2, act="elu"),
    "gin": stack(GIN),
    "gin_layer_norm": stack(GIN, norm="LayerNorm", norm_kwargs={"mode": "node"}),
    "gin_batch_norm": stack(GIN, norm="BatchNorm"),
    "gin_train_eps": stack(GIN, train_eps=True),
    "gin_train_eps_batch_norm": stack(GIN, train_eps=True, norm="BatchNorm"),
    "gin_directed": stack(GIN, train_eps=True),
    "gin_batch_norm_no_decay": stack(GIN, norm="BatchNorm"),
    "gcn_class_weights": stack(GCN),
    "gcn_multi_label_class_weights": stack(GCN),
    "gcn_directed_weighted": stack(GCN),
    "gcn_undirected_weighted": stack(GCN),
    "gcnii_directed_weighted": Gcnii,
    "sage_directed_weighted": stack(WeightedSage),
    "gin_directed_weighted": stack(WeightedGin),
    "resgcn_directed_weighted": lambda: ResGcn(WeightedMeanConv),
}


def graph(directed):
    """A dense adjacency matrix; without self-loops, or directed with one. The last node has no edges."""
    adjacency = torch.rand(NODES, NODES) < 0.2
    adjacency[:, -1] = adjacency[-1, :] = False
    adjacency.fill_diagonal_(False)
    if directed:
        adjacency[3, 3] = True
    else:
        adjacency |= adjacency.T.clone()
    return adjacency.double()


def edge_weights(adjacency, directed):
    """Weights that single precision holds; those of the edges into node 2 are 0."""
    weights = (0.25 + 3 * torch.rand(NODES, NODES)).float().double()
    if not directed:
        weights = torch.triu(weights) + torch.triu(weights).T
    weights[2, :] = 0
    if not directed:
        weights[:, 2] = 0
    return weights * adjacency


def scramble(model):
    """Sets biases, norms, running statistics and GIN's eps to values in which errors show."""
    for tensor in model.state_dict().values():
        if tensor.dim() == 1:
            tensor += 0.3 * torch.rand_like(tensor)


def evaluate(model, *inputs):
    model.eval()
    with torch.no_grad():
        logits = model(*inputs)
    model.train()
    return logits


def prefixed(prefix, tensors):
    return {prefix + name: tensor.detach().clone() for name, tensor in tensors}


def seed(name):
    """Returns the seed of a case: cases with edge weights are counted on their own, from FIRST_WEIGHTED."""
    is_weighted = name.endswith("_weighted")
    alike = [case for case in CASES if case.endswith("_weighted") == is_weighted]
    return (FIRST_WEIGHTED if is_weighted else 1) + alike.index(name)


def record(name):
    """Returns the fixture of one case."""
    torch.manual_seed(seed(name))
    model = CASES[name]()
    scramble(model)
    directed = "_directed" in name
    adjacency, x = graph(directed), torch.randn(NODES, INPUTS)
    multi = "multi_label" in name
    class_weights = torch.tensor([0.3, 4.0, 0.0]) if name.endswith("class_weights") else None
    labels = torch.randint(2, (NODES, CLASSES)) if multi else torch.randint(CLASSES, (NODES,))
    rows = torch.randperm(NODES)[: NODES // 2]
    edge_index = adjacency.T.nonzero().T  # (source, destination)
    inputs, out = (x, edge_index), {}
    if name.endswith("weighted"):
        out["data.edge_weights"] = weights = edge_weights(adjacency, directed)
        edge_weight = weights[edge_index[1], edge_index[0]]
        # The models of torch_geometric.nn.models take it by name.
        by_name = isinstance(model, (GCN, GraphSAGE, GIN))
        named = {"edge_weight": edge_weight} if by_name else {}
        inputs = inputs if by_name else (*inputs, edge_weight)
        forward, model.forward = model.forward, lambda *given: forward(*given, **named)

    def loss():
        logits = model(*inputs)[rows]
        if multi:
            return F.binary_cross_entropy_with_logits(logits, labels[rows].double(), pos_weight=class_weights)
        return F.cross_entropy(logits, labels[rows], weight=class_weights)

    out |= prefixed("initial.", model.state_dict().items())
    out |= {"data.adjacency": adjacency, "data.features": x, "logits": evaluate(model, *inputs)}
    out |= {"data.labels": labels.double(), "data.rows": rows.double()}
    out |= {"data.weights": class_weights} if class_weights is not None else {}
    weight_decay = 0 if name.endswith("no_decay") else 5e-4
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=weight_decay)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        losses.append(loss())
        losses[-1].backward()
        if step == 0:
            out |= prefixed("gradient.", ((n, p.grad) for n, p in model.named_parameters()))
        optimizer.step()
    out |= prefixed("final.", model.state_dict().items())
    return out | {"losses": torch.stack(losses).detach(), "final_logits": evaluate(model, *inputs)}


def optimizer_steps():
    """Steps of Adam and AdamW in single precision, along gradients of all magnitudes."""
    torch.manual_seed(1)
    gradients = torch.randn(STEPS, SIZE) * 10.0 ** torch.linspace(-6, 2, SIZE)
    out = {"gradients": gradients.float().double()}
    for name, method in {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}.items():
        p = torch.zeros(SIZE, dtype=torch.float32, requires_grad=True)
        optimizer = method([p], lr=0.01, weight_decay=5e-4)
        steps = []
        for gradient in gradients:
            p.grad = gradient.float()
            optimizer.step()
            steps.append(p.detach().double())
        out[name] = torch.stack(steps)
    return out


def main():
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    FIXTURES.mkdir(exist_ok=True)
    cases = {name: record for name in CASES} | {"optimizer_f32": lambda _: optimizer_steps()}
    if unknown := set(sys.argv[1:]) - set(cases):
        sys.exit(f"parity.py: {', '.join(unknown)}: no such case; there are {', '.join(cases)}")
    for name in sys.argv[1:] or cases:
        tensors = {key: tensor.contiguous().numpy() for key, tensor in cases[name](name).items()}
        path = FIXTURES / f"{name}.safetensors"
        save_file(tensors, path)
        print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
