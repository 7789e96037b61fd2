"""TorchRec's collections with their tables in the service.

    from embla.torchrec import EmbeddingBagCollection

in place of torchrec's, and the model is as it was: the same constructor, the same results, the same
names of parameters, optimizers by ``_apply_optimizer_in_backward``. Needs torchrec 1.9 or newer.
"""

try:
    import torchrec as _torchrec  # noqa: F401
except ImportError as error:
    raise ImportError(
        "embla.torchrec needs torchrec, whose FBGEMM fits one version of torch: pip install"
        " torch==2.14.1 fbgemm-gpu-cpu==1.9.0 tensordict && pip install --no-deps torchrec==1.9.2"
    ) from error

from embla.torchrec.collection import RemoteCollection
from embla.torchrec.fused_optimizer import EmblaFusedOptimizer
from embla.torchrec.local import to_local
from embla.torchrec.managed_collision import (
    ManagedCollisionEmbeddingBagCollection,
    ManagedCollisionEmbeddingCollection,
)
from embla.torchrec.modules import EmbeddingBagCollection, EmbeddingCollection
from embla.torchrec.optimizers import to_service_optimizer
from embla.torchrec.stub import RemoteTable
from embla.torchrec.wrap import ignore_in_ddp, wrap

__all__ = [
    "EmbeddingBagCollection",
    "EmbeddingCollection",
    "EmblaFusedOptimizer",
    "ManagedCollisionEmbeddingBagCollection",
    "ManagedCollisionEmbeddingCollection",
    "RemoteCollection",
    "RemoteTable",
    "ignore_in_ddp",
    "to_local",
    "to_service_optimizer",
    "wrap",
]
