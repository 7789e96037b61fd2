"""Twenty steps on a live cluster of two shards against FBGEMM, the code behind TorchRec's modules.

Weights and outputs agree to 1e-6: not to the bit, because FBGEMM adds duplicates in another order
and with fused multiply-adds. What differs on purpose comes last.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torchrec
from builders import apply_optimizer, bag_config, config
from torchrec import KeyedJaggedTensor, PoolingType

from embla.torchrec import EmbeddingBagCollection, EmbeddingCollection

fbgemm = pytest.importorskip("fbgemm_gpu", reason="FBGEMM is not installed")
training = pytest.importorskip("fbgemm_gpu.split_table_batched_embeddings_ops_training")
common = pytest.importorskip("fbgemm_gpu.split_table_batched_embeddings_ops_common")
from fbgemm_gpu.split_embedding_configs import EmbOptimType, SparseType  # noqa: E402
from torchrec.modules.embedding_configs import DataType  # noqa: E402

pytestmark = pytest.mark.slow

STEPS, BATCH, LR, EPS, ROWS = 20, 24, 0.05, 1e-8, 400
WEIGHT_TOLERANCE = 1e-6
OUTPUT_TOLERANCE = 1e-6  # Relative to the sum of the magnitudes that are added.
STATE_TOLERANCE = 5e-6  # Relative.
OPTIMIZERS = {
    "sgd": (torchrec.optim.SGD, EmbOptimType.EXACT_SGD),
    "adagrad": (torchrec.optim.Adagrad, EmbOptimType.EXACT_ADAGRAD),
    "rowwise_adagrad": (torchrec.optim.RowWiseAdagrad, EmbOptimType.EXACT_ROWWISE_ADAGRAD),
}
LAYOUTS = {"one table per feature": [0, 1], "shared table": [0, 0, 1]}


class Oracle:
    """FBGEMM's fused tables on the CPU, with the rows that ours begin with."""

    def __init__(self, ours: Any, layout: list[int], dim: int, pooling: str, kind: str, **extra):
        modes = {"mean": common.PoolingMode.MEAN, "none": common.PoolingMode.NONE}
        self.tables = training.SplitTableBatchedEmbeddingBagsCodegen(
            [(ROWS, dim, common.EmbeddingLocation.HOST, training.ComputeDevice.CPU)] * 2,
            feature_table_map=layout,
            optimizer=OPTIMIZERS[kind][1],
            learning_rate=LR,
            eps=EPS,
            pooling_mode=modes.get(pooling, common.PoolingMode.SUM),
            stochastic_rounding=False,
            **extra,
        )
        self.weights = self.tables.split_embedding_weights()
        for weight, rows in zip(self.weights, rows_of(ours), strict=True):
            weight.data.copy_(rows)

    def __call__(self, inputs: KeyedJaggedTensor) -> torch.Tensor:
        return self.tables(inputs.values(), inputs.offsets().long(), inputs.weights_or_none())

    def state(self, table: int) -> torch.Tensor:
        (state,) = self.tables.split_optimizer_states()[table]
        return state.reshape(ROWS, -1)


def rows_of(ours: Any) -> list[torch.Tensor]:
    client = ours.site.client
    return [torch.from_numpy(client.read_rows(t, np.arange(ROWS))) for t in ("t0", "t1")]


def make(service: dict[str, Any], layout: list[int], dim: int, pooling: str, **fields: Any) -> Any:
    """Return our collection over two tables whose weights are in +-1."""
    fields |= {"num_embeddings": ROWS, "weight_init_min": -1.0, "weight_init_max": 1.0}
    names = [[f"f{i}" for i, t in enumerate(layout) if t == table] for table in (0, 1)]
    service = service | {"sharding": {"t0": "row_wise", "t1": "row_wise"}}
    if pooling == "none":
        configs = [config(f"t{i}", names[i], dim, **fields) for i in (0, 1)]
        return EmbeddingCollection(configs, **service)
    kind = PoolingType.MEAN if pooling == "mean" else PoolingType.SUM
    configs = [bag_config(f"t{i}", names[i], dim, pooling=kind, **fields) for i in (0, 1)]
    return EmbeddingBagCollection(configs, is_weighted=pooling == "weighted", **service)


def batches(layout: list[int], weighted: bool, steps: int = STEPS) -> Any:
    """Yield features with many duplicates, empty bags, and now and then no id at all."""
    rng = np.random.default_rng(7)
    for _ in range(steps):
        lengths = rng.integers(0, 7, (len(layout), BATCH)).astype(np.int32)
        lengths[rng.random(len(layout)) < 0.1] = 0
        count = int(lengths.sum())
        ids = np.minimum(rng.zipf(1.3, count) - 1, ROWS - 1)
        yield KeyedJaggedTensor(
            [f"f{i}" for i in range(len(layout))],
            torch.from_numpy(ids.astype(np.int64)),
            lengths=torch.from_numpy(lengths.ravel()),
            weights=torch.rand(count) + 0.1 if weighted else None,
        )


def output(module: Any, inputs: KeyedJaggedTensor, pooling: str) -> torch.Tensor:
    out = module(inputs)
    return (
        torch.cat([part.values() for part in out.values()]) if pooling == "none" else out.values()
    )


def magnitudes(ours: Any, layout: list[int], inputs: KeyedJaggedTensor, pooling: str) -> Any:
    """Return what an output's rounding is measured by: its rows' largest weights, pooled."""
    largest = [rows.abs().amax(dim=1) for rows in rows_of(ours)]
    dim = ours.site.dims[0]
    columns = []
    for table, part in zip(layout, inputs.to_dict().values(), strict=True):
        added = largest[table][part.values()]
        if pooling == "none":
            columns.append(added[:, None])
            continue
        if pooling == "weighted":
            added = added * part.weights()
        bags = torch.segment_reduce(added, "sum", lengths=part.lengths().long())
        if pooling == "mean":
            bags = bags / part.lengths().clamp(min=1)
        columns.append(bags[:, None].expand(-1, dim))
    # An empty bag is all zeros on both sides.
    return torch.cat(columns, dim=0 if pooling == "none" else 1).clamp(min=1e-30)


def train_both(
    service, kind, layout, dim, pooling, *, oracle=None, kwargs=None, outputs_agree=True, **fields
):
    """Train ours and FBGEMM with the same gradients; return both, and the largest difference."""
    torch.manual_seed(5)
    ours = make(service, layout, dim, pooling, **fields)
    apply_optimizer(ours, OPTIMIZERS[kind][0], lr=LR, eps=EPS, **(kwargs or {}))
    ours.connect()
    theirs = Oracle(ours, layout, dim, pooling, kind, **(oracle or {}))
    for inputs in batches(layout, pooling == "weighted"):
        got, expected = output(ours, inputs, pooling), theirs(inputs)
        if outputs_agree:
            differences = (got - expected).abs() / magnitudes(ours, layout, inputs, pooling)
            assert (differences <= OUTPUT_TOLERANCE).all(), differences.max()
        gradient = torch.randn_like(got)
        got.backward(gradient)
        expected.backward(gradient.to(expected.dtype))
    differences = [
        (rows - weight.float()).abs().max().item()
        for rows, weight in zip(rows_of(ours), theirs.weights, strict=True)
    ]
    return ours, theirs, max(differences)


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("pooling", ["sum", "mean", "weighted", "none"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dim", [4, 16, 64, 128])
def test_weights_and_state_agree_with_fbgemm(service, kind, pooling, layout, dim):
    ours, theirs, difference = train_both(service, kind, LAYOUTS[layout], dim, pooling)
    assert difference <= WEIGHT_TOLERANCE
    if kind != "sgd":
        for table in (0, 1):
            state = ours.site.client.read_state(f"t{table}", np.arange(ROWS))
            torch.testing.assert_close(
                torch.from_numpy(state), theirs.state(table), rtol=STATE_TOLERANCE, atol=1e-7
            )


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_clipped_gradients_agree_with_fbgemm(service, kind, layout):
    options = {"gradient_clipping": True, "max_gradient": 0.05}
    *_, difference = train_both(
        service, kind, LAYOUTS[layout], 16, "sum", oracle=options, kwargs=options
    )
    assert difference <= WEIGHT_TOLERANCE


@pytest.mark.parametrize("mode", ["L2", "DECOUPLE"])
def test_weight_decay_of_a_shared_table_agrees_with_fbgemm(service, mode):
    options = {"weight_decay": 0.02, "weight_decay_mode": training.WeightDecayMode[mode]}
    *_, difference = train_both(
        service, "rowwise_adagrad", [0, 0, 1, 1], 16, "sum", oracle=options, kwargs=options
    )
    assert difference <= WEIGHT_TOLERANCE


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_fp16_weights_agree_with_fbgemm_to_one_ulp(service, kind):
    _, theirs, difference = train_both(
        service,
        kind,
        [0, 1],
        16,
        "sum",
        oracle={"weights_precision": SparseType.FP16},
        outputs_agree=False,
        data_type=DataType.FP16,
    )
    largest = max(weight.abs().max().item() for weight in theirs.weights)
    assert difference <= np.spacing(np.float16(largest))


# ------------------------------------------------------------------ what differs on purpose


@pytest.mark.filterwarnings("ignore:the service applies weight_decay")
@pytest.mark.parametrize("kind", ["sgd", "adagrad", "rowwise_adagrad"])
def test_weight_decay_that_fbgemm_ignores_on_the_cpu_is_applied(service, kind):
    """FBGEMM drops it for SGD, Adagrad, and row-wise Adagrad of a table with one feature."""
    options = {"weight_decay": 0.02}
    mode = {"weight_decay_mode": training.WeightDecayMode.L2} if "row" in kind else {}
    *_, difference = train_both(
        service,
        kind,
        [0, 1],
        16,
        "sum",
        oracle=options | mode,
        kwargs=options | mode,
        outputs_agree=False,
    )
    assert difference > 1e-3


def adam_pair(service, steps, optimizer, **kwargs):
    """Train ours and TorchRec's unsharded collection with an optimizer in its backward pass."""
    torch.manual_seed(5)
    ours = make(service, [0, 1], 16, "sum")
    apply_optimizer(ours, torch.optim.Adam, lr=LR, **kwargs)
    ours.connect()
    theirs = torchrec.EmbeddingBagCollection(ours.embedding_bag_configs())
    for table, rows in zip(theirs.embedding_bags.values(), rows_of(ours), strict=True):
        table.weight.data.copy_(rows)
    apply_optimizer(theirs, optimizer, lr=LR, **kwargs)
    for inputs in steps:
        gradient = torch.randn(BATCH, 32)
        ours(inputs).values().backward(gradient)
        theirs(inputs).values().backward(gradient)
    return max(
        (rows - table.weight).abs().max().item()
        for rows, table in zip(rows_of(ours), theirs.embedding_bags.values(), strict=True)
    )


def test_adam_is_lazy_where_torchs_moves_every_row(service):
    assert adam_pair(service, batches([0, 1], False), torch.optim.Adam) > 0.05


def test_adam_is_torchs_where_every_step_touches_every_row(service):
    every_row = KeyedJaggedTensor(
        ["f0", "f1"],
        torch.arange(ROWS).repeat(2),
        lengths=torch.full((2 * BATCH,), ROWS // BATCH).index_add(
            0, torch.tensor([0, BATCH]), torch.full((2,), ROWS % BATCH)
        ),
    )
    assert adam_pair(service, [every_row] * STEPS, torch.optim.Adam) <= 5e-6
