"""Every sharding type has the bits of every other, from Python as from C++.

Only sums of bags whose rows lie on several devices are rounded differently (docs/ARCHITECTURE.md).
"""

import numpy as np
import pytest

from embla import Adam, FeatureSet, Lookup, Uniform

TYPES = ["table_wise", "data_parallel", "column_wise", "table_column_wise", "row_wise",
         "table_row_wise", "grid_shard"]  # fmt: skip
ROWS, DIM, BAGS = 501, 24, 16


def train(client, table):
    """Return rows that were seen, all rows and all state, as bytes; and sums and means of bags."""
    features = FeatureSet([(table, "sum", DIM), (table, "mean", DIM)])
    rng = np.random.default_rng(7)
    bits, pooled = [], []
    for step in range(1, 7):
        lengths = rng.integers(0, 4, 2 * BAGS).astype(np.int32)
        ids = rng.integers(0, ROWS, int(lengths.sum()))
        out = np.empty((BAGS, 2 * DIM), np.float32)
        client.lookup_packed(features, ids, lengths, None, out).wait()
        pooled.append(out)
        bits += client.lookup([Lookup(table, ids)])
        gradients = rng.standard_normal(out.shape, dtype=np.float32)
        client.update_packed(features, ids, lengths, None, gradients, step=step).wait()
    every = np.arange(ROWS)
    bits += [client.read_rows(table, every), client.read_state(table, every)]
    return [part.tobytes() for part in bits], np.stack(pooled)


@pytest.mark.parametrize("sharding", TYPES)
def test_equal_bits_under_every_sharding_type(client, make_table, sharding):
    spec = {"rows": ROWS, "dim": DIM, "optimizer": Adam(lr=0.05), "init": Uniform(-1, 1), "seed": 3}
    names = [make_table(sharding=kind, **spec) for kind in ("table_wise", sharding)]
    tables = {info.name: info.sharding for info in client.tables()}
    assert [tables[name] for name in names] == ["table_wise", sharding]
    (expected, expected_sums), (got, sums) = (train(client, name) for name in names)
    assert got == expected
    np.testing.assert_allclose(sums, expected_sums, rtol=0, atol=2e-6)
