"""Embedding modules for PyTorch whose rows live in the service.

    client = embla.connect("host:7070")
    model = Model(embla.torch.EmbeddingBag(client, "clicks"))
    rows = embla.torch.FusedOptimizer(model, lr=0.02)

A forward pass looks rows up, a backward pass sends their gradients: one step of the table's
optimizer, exactly once. Works in eager mode and under ``torch.compile``; needs torch 2.6 or newer.
"""

from embla.torch.embedding import Embedding, EmbeddingBag, EmbeddingBagSet
from embla.torch.module import RemoteModule
from embla.torch.optimizer import FusedOptimizer, find_sites, flush
from embla.torch.pipeline import TrainPipeline
from embla.torch.prefetch import Prefetch
from embla.torch.request import Feature
from embla.torch.site import CallOptions, Site
from embla.torch.steps import rank_of_process

__all__ = [
    "CallOptions",
    "Embedding",
    "EmbeddingBag",
    "EmbeddingBagSet",
    "Feature",
    "FusedOptimizer",
    "Prefetch",
    "RemoteModule",
    "Site",
    "TrainPipeline",
    "find_sites",
    "flush",
    "rank_of_process",
]
