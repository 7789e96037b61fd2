"""A trained model without the service: exported, and compiled ahead of time."""

from __future__ import annotations

import pytest
import torch
from builders import apply_optimizer, bag_config
from torch import nn
from torchrec import KeyedJaggedTensor, PoolingType

from embla.torchrec import EmbeddingBagCollection, to_local

BAGS = 16


class Model(nn.Module):
    """Makes the KeyedJaggedTensor itself: exported programs take plain tensors."""

    def __init__(self, service):
        super().__init__()
        configs = [bag_config("t", ["a", "b"]), bag_config("u", ["c"], pooling=PoolingType.MEAN)]
        self.words = EmbeddingBagCollection(configs, **service)
        self.over = nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, ids, lengths):
        features = KeyedJaggedTensor(["a", "b", "c"], ids, lengths=lengths)
        return self.over(self.words(features).values()).squeeze(1)


def batch(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 50, (6 * BAGS,), generator=generator), torch.full((3 * BAGS,), 2)


@pytest.fixture
def trained(service):
    torch.manual_seed(1)
    model = Model(service)
    apply_optimizer(model.words)
    for step in range(3):
        model(*batch(step)).square().mean().backward()
    return model.eval()


@pytest.mark.slow
def test_a_local_copy_is_exported_and_compiled_ahead_of_time(trained, tmp_path):
    with torch.no_grad():
        exported = torch.export.export(to_local(trained), batch(0), strict=False)
    assert "embla" not in str(exported.graph)
    path = str(tmp_path / "model.pt2")
    torch._inductor.aoti_compile_and_package(exported, package_path=path)
    compiled = torch._inductor.aoti_load_package(path)
    for seed in (0, 9):
        with torch.no_grad():
            expected = trained(*batch(seed))
            torch.testing.assert_close(exported.module()(*batch(seed)), expected)
            torch.testing.assert_close(compiled(*batch(seed)), expected)
