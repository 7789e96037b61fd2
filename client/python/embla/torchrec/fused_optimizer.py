"""The optimizers of a collection's tables, in the form that TorchRec's wrappers expect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torchrec.optim.fused import FusedOptimizer as TorchRecFusedOptimizer

from embla.torch import Site


class EmblaFusedOptimizer(TorchRecFusedOptimizer):
    """One parameter group per table; a group's ``lr`` goes into the table's next update.

    ``step`` and ``zero_grad`` do nothing: a backward pass is the step. For
    ``torchrec.optim.keyed.CombinedOptimizer``, warm-up and schedulers.

    Its ``state_dict`` has no rows of state: those are in the service, and
    :mod:`embla.checkpoint` saves them under TorchRec's names.
    """

    def __init__(self, site: Site, rates: Mapping[str, tuple[str, Tensor, float]]) -> None:
        """Take the ``site``, and in ``rates`` each table's key, its stub and its learning rate."""
        self._site = site
        self._groups: dict[str, dict[str, Any]] = {
            table: {"params": [stub], "lr": rate} for table, (_, stub, rate) in rates.items()
        }
        params = {key: stub for key, stub, _ in rates.values()}
        super().__init__(params, {}, list(self._groups.values()))
        site.learning_rate_of = self._learning_rate

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Return what ``closure`` returns: backward passes have stepped already."""
        return None if closure is None else closure()

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Do nothing, whatever ``set_to_none``: there are no gradients to keep."""

    def update_hyper_parameters(self, params_dict: Mapping[str, Any]) -> None:
        """Set the learning rate of all tables: ``params_dict`` has ``lr`` and nothing else."""
        for name, value in params_dict.items():
            if name != "lr":
                raise ValueError(f"{name} of a table is set by Admin.set_table, not per update")
            for group in self._groups.values():
                group["lr"] = value

    def set_optimizer_step(self, step: int) -> None:
        """Set the number of updates so far, which Adam's bias correction counts with."""
        self._site.step = step

    def _learning_rate(self, table: str) -> float:
        rate = self._groups[table]["lr"]
        return float(rate.item() if isinstance(rate, torch.Tensor) else rate)
