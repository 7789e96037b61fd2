"""The optimizers of remote tables as one object for schedulers and checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn

from embla.torch.module import RemoteModule
from embla.torch.site import Site


class FusedOptimizer(torch.optim.Optimizer):
    """Sets the learning rates of the tables that modules use; the steps happen in backward passes.

    It has one parameter group per table, whose ``lr`` goes into the next update: so learning-rate
    schedulers work. ``step`` and ``zero_grad`` do nothing, because an update is the step.

    Its ``state_dict`` holds learning rates and the number of updates of each table. Rows and
    their optimizer state are in the service (:mod:`embla.checkpoint`).

    Parameters
    ----------
    modules
        Modules to search for Embla's modules.
    lr
        The learning rate of all tables, or of each by its name.
    """

    def __init__(
        self, modules: nn.Module | Iterable[nn.Module], *, lr: float | Mapping[str, float]
    ) -> None:
        self._sites = find_sites(modules)
        tables = dict.fromkeys(f.table for site in self._sites for f in site.features)
        if not tables:
            raise ValueError("the modules use no table of Embla")
        rates = lr if isinstance(lr, Mapping) else dict.fromkeys(tables, lr)
        if missing := [table for table in tables if table not in rates]:
            raise ValueError(f"lr names no learning rate of {', '.join(missing)}")
        groups: list[dict[str, Any]] = [
            {"params": [torch.empty(0)], "lr": rates[table], "table": table} for table in tables
        ]
        super().__init__(groups, {})
        self._position = {table: position for position, table in enumerate(tables)}
        for site in self._sites:
            site.learning_rate_of = self._learning_rate

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Do nothing but call ``closure``: backward passes have stepped already."""
        return None if closure is None else closure()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Do nothing, whatever ``set_to_none``: there are no gradients to keep."""

    def state_dict(self) -> dict[str, Any]:
        """Return learning rates, and how many updates each table has had from these modules."""
        for group in self.param_groups:
            group["iter"] = max(site.step for site in self._sites_of(group["table"]))
        return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over learning rates and numbers of updates."""
        super().load_state_dict(state_dict)
        for group in self.param_groups:
            for site in self._sites_of(group["table"]):
                site.step = group["iter"]

    def _sites_of(self, table: str) -> list[Site]:
        return [s for s in self._sites if any(f.table == table for f in s.features)]

    def _learning_rate(self, table: str) -> float:
        return float(self.param_groups[self._position[table]]["lr"])


def find_sites(modules: nn.Module | Iterable[nn.Module]) -> list[Site]:
    """Return the sites of all Embla modules in ``modules``, each once."""
    roots = [modules] if isinstance(modules, nn.Module) else list(modules)
    found = dict.fromkeys(m for root in roots for m in root.modules())
    return [m.site for m in found if isinstance(m, RemoteModule)]


def flush(modules: nn.Module | Iterable[nn.Module]) -> None:
    """Wait until all updates of ``modules`` are acknowledged, and raise what failed."""
    for site in find_sites(modules):
        site.flush()
