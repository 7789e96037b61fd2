"""EmbeddingCollection gives what TorchRec's gives, and learns what TorchRec's learns."""

from __future__ import annotations

import pytest
import torch
from builders import config, features, pair, rows_of

from embla.torchrec import EmbeddingCollection

LENGTHS = {"a": [2, 0, 1], "b": [1, 3, 0]}
CASES = {
    "one table per feature": ([("t", "a"), ("u", "b")], LENGTHS, {}, {}),
    "shared feature": ([("t", "ab"), ("u", "b")], LENGTHS, {}, {}),
    "shared table": ([("t", "ab")], LENGTHS, {}, {}),
    "with indices": ([("t", "a"), ("u", "b")], LENGTHS, {"need_indices": True}, {}),
    "int32 ids": ([("t", "ab")], LENGTHS, {"need_indices": True}, {"dtype": torch.int32}),
    "other keys, other order": (
        [("t", "a"), ("u", "b")],
        {"x": [1, 1, 1], "b": [1, 3, 0], "a": [2, 0, 1]},
        {},
        {},
    ),
    "no ids": ([("t", "ab")], {"a": [0, 0], "b": [0, 0]}, {}, {}),
    "no bags": ([("t", "a"), ("u", "b")], {"a": [], "b": []}, {}, {}),
    "variable batch": (
        [("t", "a"), ("u", "b")],
        {"a": [2, 1], "b": [1, 3, 0]},
        {},
        {"stride_per_key_per_rank": [[2], [3]]},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_forward_is_exact_and_the_step_equals_torchrecs(service, case):
    tables, lengths, options, feature_options = CASES[case]
    configs = [config(name, list(names)) for name, names in tables]
    ours, theirs = pair(configs, service, **options)
    inputs = features(lengths, **feature_options)
    got, expected = ours(inputs), theirs(inputs)
    assert list(got) == list(expected)
    for name in expected:
        assert torch.equal(got[name].values(), expected[name].values())
        assert torch.equal(got[name].lengths(), expected[name].lengths())
        weights = got[name].weights_or_none(), expected[name].weights_or_none()
        assert (weights[0] is None) == (weights[1] is None)
        if weights[0] is not None:
            assert torch.equal(*weights)
    sum(part.values().square().sum() for part in got.values()).backward()
    sum(part.values().square().sum() for part in expected.values()).backward()
    for name, rows in rows_of(ours).items():
        weight = theirs.embeddings[name].weight
        torch.testing.assert_close(rows, weight.data, rtol=0, atol=1e-6)


def test_methods_are_torchrecs(service):
    ours, theirs = pair([config("t", ["a", "b"]), config("u", ["b"])], service)
    assert ours.embedding_configs() == theirs.embedding_configs()
    assert ours.embedding_dim() == theirs.embedding_dim()
    assert ours.need_indices() == theirs.need_indices()
    assert ours.embedding_names_by_table() == theirs.embedding_names_by_table()
    assert ours.use_gather_select() == theirs.use_gather_select()
    assert list(ours.state_dict()) == list(theirs.state_dict())


def test_tables_of_different_dims_are_refused(service):
    with pytest.raises(ValueError, match="same embedding dimension"):
        EmbeddingCollection([config("t", ["a"], 8), config("u", ["b"], 16)], **service)
