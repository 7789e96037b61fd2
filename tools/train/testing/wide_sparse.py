"""Generated wide sparse examples: 10^5 columns, of which every example has 40.

A CSV file of 40 columns of text with 2,500 values each: one-hot, that is 10^5 columns. Popularity
is skewed: value floor(2500 * u^3), u uniform. Labels are drawn from a planted logistic regression
with normal weights, so that no model ranks better than the truth, and a linear one comes close.
"""

import math
import random

COLUMNS = 40
VALUES = 2500
WEIGHT_DEVIATION = 0.35
INTERCEPT = -1.0


def wide_sparse_rows(examples, seed):
    """The header, then rows of text; the label comes first."""
    draw = random.Random(seed)
    weights = [[draw.gauss(0.0, WEIGHT_DEVIATION) for _ in range(VALUES)] for _ in range(COLUMNS)]
    yield ["label"] + [f"c{c}" for c in range(COLUMNS)]
    for _ in range(examples):
        values = [int(VALUES * draw.random() ** 3) for _ in range(COLUMNS)]
        score = INTERCEPT + sum(weights[c][v] for c, v in enumerate(values))
        label = draw.random() < 1.0 / (1.0 + math.exp(-score))
        yield [str(int(label))] + [f"v{v}" for v in values]
