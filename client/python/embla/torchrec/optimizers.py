"""TorchRec's optimizers as the service's."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torchrec import optim as torchrec_optim

import embla

# Values that change nothing, by argument. Another value has no counterpart in the service.
_NEUTRAL: Mapping[str, Any] = {
    "amsgrad": False,
    "dampening": 0,
    "lr_decay": 0,
    "maximize": False,
    "momentum": 0,
    "nesterov": False,
}
# Arguments that say how torch computes a step, not what it is.
_IMPLEMENTATION = frozenset({"capturable", "differentiable", "foreach", "fused"})
_WEIGHT_DECAY_MODES = {0: "none", 1: "l2", 2: "decoupled"}  # Values of FBGEMM's WeightDecayMode.


@dataclass(frozen=True)
class _Rule:
    """The service's counterpart of a class of optimizers.

    Attributes
    ----------
    optimizer
        The service's class.
    defaults
        The values of the arguments that are not given.
    decay
        What ``weight_decay`` means where no mode is given.
    fbgemm_cpu_ignores_decay
        Whether FBGEMM computes this optimizer without weight decay whatever it is told.
    """

    optimizer: type[embla.Optimizer]
    decay: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    fbgemm_cpu_ignores_decay: bool = False


_FBGEMM_DEFAULTS = {"lr": 0.01, "eps": 1e-8}
_RULES: Mapping[type[torch.optim.Optimizer], _Rule] = {
    torch.optim.SGD: _Rule(embla.SGD, "l2", {"lr": 1e-3}, fbgemm_cpu_ignores_decay=True),
    torchrec_optim.SGD: _Rule(embla.SGD, "l2", {"lr": 0.01}, fbgemm_cpu_ignores_decay=True),
    torch.optim.Adagrad: _Rule(
        embla.Adagrad, "l2", {"lr": 1e-2, "eps": 1e-10}, fbgemm_cpu_ignores_decay=True
    ),
    torchrec_optim.Adagrad: _Rule(
        embla.Adagrad, "l2", _FBGEMM_DEFAULTS, fbgemm_cpu_ignores_decay=True
    ),
    torchrec_optim.RowWiseAdagrad: _Rule(embla.RowwiseAdagrad, "l2", {"lr": 1e-2, "eps": 1e-10}),
    torch.optim.Adam: _Rule(embla.Adam, "decoupled", {"lr": 1e-3, "eps": 1e-8}),
    torchrec_optim.Adam: _Rule(embla.Adam, "decoupled", _FBGEMM_DEFAULTS),
}


def to_service_optimizer(
    optimizer_class: type[torch.optim.Optimizer], kwargs: Mapping[str, Any]
) -> embla.Optimizer:
    """Return the service's optimizer for ``optimizer_class`` and the ``kwargs`` of its constructor.

    Adam is lazy, as FBGEMM's: it counts updates for its bias correction, moves only the rows that
    an update touches, and takes its weight decay from the weight.

    Raises
    ------
    ValueError
        There is no such rule in the service, or an argument that it does not have.
    """
    rule = _RULES.get(optimizer_class)
    if rule is None:
        raise ValueError(
            f"the service has no {optimizer_class.__name__}; it has SGD, Adagrad, RowWiseAdagrad"
            " and Adam"
        )
    given = dict(rule.defaults) | dict(kwargs)
    fields = _take_fields(rule, given)
    if issubclass(rule.optimizer, embla.Adam):
        fields["bias_correction"] = "step"
    _refuse_others(optimizer_class, given)
    return rule.optimizer(**fields)


def _take_fields(rule: _Rule, given: dict[str, Any]) -> dict[str, Any]:
    """Move the arguments that the service's class has out of ``given``."""
    rate = given.pop("lr")
    fields: dict[str, Any] = {"lr": float(given.pop("learning_rate", rate))}
    eps = given.pop("eps", None)
    if eps is not None and rule.optimizer is not embla.SGD:
        fields["eps"] = float(eps)
    if issubclass(rule.optimizer, embla.Adam):
        betas = given.pop("betas", (0.9, 0.999))
        fields["beta1"] = float(given.pop("beta1", betas[0]))
        fields["beta2"] = float(given.pop("beta2", betas[1]))
    if issubclass(rule.optimizer, embla.Adagrad | embla.RowwiseAdagrad):
        fields["initial_accumulator"] = float(given.pop("initial_accumulator_value", 0.0))
    clips, limit = given.pop("gradient_clipping", False), given.pop("max_gradient", 1.0)
    if clips:
        fields["gradient_clip"] = float(limit)
    return fields | _take_weight_decay(rule, given)


def _take_weight_decay(rule: _Rule, given: dict[str, Any]) -> dict[str, Any]:
    decay = float(given.pop("weight_decay", 0.0))
    mode = given.pop("weight_decay_mode", None)
    if decay == 0.0:
        return {}
    name = (
        rule.decay if mode is None else _WEIGHT_DECAY_MODES.get(int(getattr(mode, "value", mode)))
    )
    if name is None:
        raise ValueError(f"the service has no weight decay of mode {mode}")
    if name == "none":
        return {}
    if rule.fbgemm_cpu_ignores_decay:
        warnings.warn(
            f"the service applies weight_decay={decay} to {rule.optimizer.kind}, which FBGEMM"
            " computes without any",
            stacklevel=4,
        )
    return {"weight_decay": decay, "weight_decay_mode": name}


def _refuse_others(optimizer_class: type[torch.optim.Optimizer], given: dict[str, Any]) -> None:
    for name, value in given.items():
        if name in _IMPLEMENTATION or (name in _NEUTRAL and value == _NEUTRAL[name]):
            continue
        raise ValueError(f"the service's {optimizer_class.__name__} has no {name}={value!r}")
