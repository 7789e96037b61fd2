"""Checkpoints of models whose rows live in the service.

    embla.checkpoint.save(model, "checkpoints/100", optimizer=optimizer)
    embla.checkpoint.load(model, "checkpoints/100", optimizer=optimizer)

They are those of ``torch.distributed.checkpoint``: stock tools read them, and those of TorchRec are
loaded. Rows travel chunk by chunk, and no process group is needed.
"""

from embla.checkpoint.dcp import load, save
from embla.checkpoint.model_state import model_state, optimizer_state, resident_ids, state_dict
from embla.checkpoint.planners import LoadPlanner, SavePlanner
from embla.checkpoint.remote_tensor import RemoteTensor

__all__ = [
    "LoadPlanner",
    "RemoteTensor",
    "SavePlanner",
    "load",
    "load_safetensors",
    "model_state",
    "optimizer_state",
    "resident_ids",
    "save",
    "save_safetensors",
    "state_dict",
]


def __getattr__(name: str) -> object:
    # Only these two need the package safetensors.
    if name in ("load_safetensors", "save_safetensors"):
        from embla.checkpoint import safetensors_files

        return getattr(safetensors_files, name)
    raise AttributeError(f"module 'embla.checkpoint' has no attribute {name!r}")
