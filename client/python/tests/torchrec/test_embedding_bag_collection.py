"""EmbeddingBagCollection gives what TorchRec's gives, and learns what TorchRec's learns."""

from __future__ import annotations

import pytest
import torch
import torchrec
from builders import apply_optimizer, bag_config, features, pair, rows_of
from tensordict import TensorDict
from torchrec import KeyedJaggedTensor, PoolingType

from embla.torchrec import EmbeddingBagCollection

TOLERANCE = 1e-6
LENGTHS = {"a": [2, 0, 1], "b": [1, 3, 0]}
MEAN = {"pooling": PoolingType.MEAN}

# Name: tables, lengths of the features, options of the module, options of the features.
CASES = {
    "one table per feature": ([("t", "a", 8, {}), ("u", "b", 16, {})], LENGTHS, {}, {}),
    "shared feature": ([("t", "ab", 8, {}), ("u", "b", 16, {})], LENGTHS, {}, {}),
    "shared table": ([("t", "ab", 8, {})], LENGTHS, {}, {}),
    "mean": ([("t", "a", 8, MEAN), ("u", "b", 16, MEAN)], LENGTHS, {}, {}),
    "mean and sum": ([("t", "a", 8, MEAN), ("u", "b", 16, {})], LENGTHS, {}, {}),
    "dim 3": ([("t", "a", 3, {}), ("u", "b", 5, {})], LENGTHS, {}, {}),
    "weighted": (
        [("t", "ab", 8, {}), ("u", "b", 16, {})],
        LENGTHS,
        {"is_weighted": True},
        {"weighted": True},
    ),
    "weights that are not used": ([("t", "ab", 8, {})], LENGTHS, {}, {"weighted": True}),
    "int32 ids": ([("t", "ab", 8, {})], LENGTHS, {}, {"dtype": torch.int32}),
    "other keys, other order": (
        [("t", "a", 8, {}), ("u", "b", 16, {})],
        {"x": [1, 1, 1], "b": [1, 3, 0], "a": [2, 0, 1]},
        {},
        {},
    ),
    "table without features": ([("a", "", 8, {})], {"a": [2, 0, 1]}, {}, {}),
    "no ids": ([("t", "ab", 8, {})], {"a": [0, 0], "b": [0, 0]}, {}, {}),
    "no bags": ([("t", "a", 8, {}), ("u", "b", 16, {})], {"a": [], "b": []}, {}, {}),
    "variable batch": (
        [("t", "ab", 8, {}), ("u", "b", 16, {})],
        {"a": [2, 1], "b": [1, 3, 0]},
        {},
        {
            "stride_per_key_per_rank": [[2], [3]],
            "inverse_indices": (["a", "b"], torch.tensor([[0, 1, 1, 0], [2, 1, 0, 0]])),
        },
    ),
    "variable batch of other keys": (
        [("t", "b", 8, MEAN), ("u", "a", 16, {})],
        {"x": [1], "a": [2, 1], "b": [1, 3, 0]},
        {},
        {
            "stride_per_key_per_rank": [[1], [2], [3]],
            "inverse_indices": (
                ["x", "a", "b"],
                torch.tensor([[0, 0, 0, 0], [0, 1, 1, 0], [2, 1, 0, 0]]),
            ),
        },
    ),
}


def configs_of(tables):
    return [bag_config(name, list(names), dim, **fields) for name, names, dim, fields in tables]


@pytest.mark.parametrize("case", CASES)
def test_forward_and_step_equal_torchrecs(service, case):
    tables, lengths, options, feature_options = CASES[case]
    ours, theirs = pair(configs_of(tables), service, **options)
    inputs = features(lengths, **feature_options)
    got, expected = ours(inputs), theirs(inputs)
    assert got.keys() == expected.keys()
    assert got.length_per_key() == expected.length_per_key()
    assert got.values().dtype == expected.values().dtype == torch.float32
    torch.testing.assert_close(got.values(), expected.values(), rtol=0, atol=TOLERANCE)
    gradient = torch.rand(got.values().shape)
    got.values().backward(gradient)
    expected.values().backward(gradient)
    for name, rows in rows_of(ours).items():
        weight = theirs.embedding_bags[name].weight
        torch.testing.assert_close(rows, weight.data, rtol=0, atol=TOLERANCE)


def test_names_and_methods_are_torchrecs(service):
    configs = configs_of([("t", "ab", 8, {}), ("u", "b", 16, MEAN)])
    ours = EmbeddingBagCollection(tables=configs, device=torch.device("cpu"), **service)
    theirs = torchrec.EmbeddingBagCollection(tables=configs)
    assert ours.embedding_bag_configs() == theirs.embedding_bag_configs()
    assert ours.is_weighted() == theirs.is_weighted()
    assert ours.device == theirs.device
    assert list(ours.state_dict()) == list(theirs.state_dict())
    shapes = [(name, p.shape) for name, p in theirs.named_parameters()]
    assert [(name, p.shape) for name, p in ours.named_parameters()] == shapes


def test_a_tensordict_is_taken(service):
    ours, theirs = pair([bag_config("t", ["a"])], service)
    nested = torch.nested.nested_tensor(
        [torch.tensor([1, 2]), torch.tensor([3])], layout=torch.jagged
    )
    inputs = TensorDict({"a": nested}, batch_size=[2])
    torch.testing.assert_close(ours(inputs).values(), theirs(inputs).values())


def test_a_missing_feature_is_a_key_error(service):
    ours, _ = pair([bag_config("t", ["a"])], service)
    with pytest.raises(KeyError, match="a"):
        ours(features({"b": [1]}))


def test_a_gradient_reaches_weights_that_a_processor_makes(service):
    ours, theirs = pair([bag_config("t", ["a", "b"])], service, is_weighted=True)
    inputs = features(LENGTHS)
    gradients = []
    for module in (ours, theirs):
        position_weights = torch.full((inputs.values().numel(),), 0.5, requires_grad=True)
        weighted = KeyedJaggedTensor(
            inputs.keys(), inputs.values(), lengths=inputs.lengths(), weights=position_weights
        )
        module(weighted).values().square().sum().backward()
        gradients.append(position_weights.grad)
    torch.testing.assert_close(*gradients)


def test_variable_batches_without_inverse_indices_are_refused(service):
    ours, _ = pair([bag_config("t", ["a", "b"])], service)
    inputs = features({"a": [1], "b": [1, 1]}, stride_per_key_per_rank=[[1], [2]])
    with pytest.raises(ValueError, match="inverse indices"):
        ours(inputs)


def test_bf16_and_fp16_tables_give_fp32(service):
    from torchrec.modules.embedding_configs import DataType

    for name, data_type in (("h", DataType.FP16), ("b", DataType.BF16)):
        ours = EmbeddingBagCollection([bag_config(name, ["a"], data_type=data_type)], **service)
        apply_optimizer(ours)
        assert ours(features({"a": [1, 2]})).values().dtype == torch.float32
        (info,) = [i for i in service["client"].tables() if i.name == name]
        assert info.dtype == {"h": "fp16", "b": "bf16"}[name]


def test_a_weighted_mean_is_refused(service):
    with pytest.raises(ValueError, match="a mean has no weights"):
        EmbeddingBagCollection([bag_config("t", ["a"], **MEAN)], is_weighted=True, **service)


def test_two_tables_of_one_name_are_refused(service):
    with pytest.raises(ValueError, match="Duplicate table name t"):
        EmbeddingBagCollection([bag_config("t", ["a"]), bag_config("t", ["b"])], **service)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_compiled_collection_equals_an_eager_one(service, backend):
    ours, theirs = pair([bag_config("t", ["a"]), bag_config("u", ["b"], 16)], service)
    torch._dynamo.reset()

    def forward(ids, lengths):
        inputs = KeyedJaggedTensor(["a", "b"], ids, lengths=lengths)
        return ours(inputs).values()

    compiled = torch.compile(forward, fullgraph=True, backend=backend)
    for seed in range(3):
        inputs = features(LENGTHS, seed=seed)
        expected = theirs(inputs).values()
        got = compiled(inputs.values(), inputs.lengths())
        torch.testing.assert_close(got, expected, rtol=0, atol=TOLERANCE)
        got.square().sum().backward()
        expected.square().sum().backward()
    assert ours.site.step == 3


def test_prefetched_features_are_taken(service):
    ours, _ = pair([bag_config("t", ["a"]), bag_config("u", ["b"], 16)], service)
    inputs = features({"b": [1, 3, 0], "a": [2, 0, 1]})
    ours.prefetch(inputs)
    ours(inputs)
    assert ours.site.prefetch_hits == 1
