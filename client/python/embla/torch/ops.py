"""The operators ``embla::lookup``, ``embla::update`` and ``embla::weight_gradient``.

A lookup takes a tensor of one element, the *hook*, which requires a gradient. So autograd calls
the lookup's backward, which sends the update and returns *the update's result* as the gradient of
the hook. This is what keeps updates alive under ``torch.compile``: an operator whose result is
not used may be dropped as dead code, silently; one that computes a gradient may not.
``tests/torch/test_compile.py`` shows both. Newer versions of torch also learn that the operators
have effects whose order counts, so that two equal lookups are not merged into one.

The gradient of per-sample weights needs the rows themselves: ``embla::weight_gradient`` reads them
once more, before the update changes them.

An operator finds its client by an integer handle (:mod:`embla.torch.site`), because integers can
be traced, exported and serialised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.library import Library, register_autograd, register_fake

from embla.torch.request import output_shape
from embla.torch.site import find_site

# The first version in which ordered effects work in backward passes, too.
_EFFECTS_SINCE = (2, 14)

_library = Library("embla", "DEF")
_tags = [
    tag
    for tag in (getattr(torch.Tag, "cudagraph_unsafe", None), torch.Tag.needs_exact_strides)
    if tag is not None
]
_library.define(
    "lookup(Tensor hook, Tensor values, Tensor lengths, Tensor? weights, int handle, int[] dims,"
    " bool pooled, SymInt[]? batch_sizes) -> Tensor",
    tags=tuple(_tags),
)
_library.define(
    "update(Tensor gradient, Tensor values, Tensor lengths, Tensor? weights, int handle,"
    " SymInt[]? batch_sizes, Tensor? after) -> Tensor",
    tags=tuple(_tags),
)
_library.define(
    "weight_gradient(Tensor gradient, Tensor values, Tensor lengths, int handle,"
    " SymInt[]? batch_sizes) -> Tensor",
    tags=tuple(_tags),
)


def _lookup(
    hook: Tensor,
    values: Tensor,
    lengths: Tensor,
    weights: Tensor | None,
    handle: int,
    dims: Sequence[int],
    pooled: bool,
    batch_sizes: Sequence[int] | None,
) -> Tensor:
    return find_site(handle).lookup(values, lengths, weights, batch_sizes).to(hook.device)


def _update(
    gradient: Tensor,
    values: Tensor,
    lengths: Tensor,
    weights: Tensor | None,
    handle: int,
    batch_sizes: Sequence[int] | None,
    after: Tensor | None,
) -> Tensor:
    """Send an update; ``after`` is what has to be computed before."""
    find_site(handle).update(gradient, values, lengths, weights, batch_sizes)
    return torch.zeros(1, dtype=torch.float32, device=gradient.device)


def _weight_gradient(
    gradient: Tensor,
    values: Tensor,
    lengths: Tensor,
    handle: int,
    batch_sizes: Sequence[int] | None,
) -> Tensor:
    site = find_site(handle)
    return site.weight_gradient(gradient, values, lengths, batch_sizes).to(gradient.device)


def _lookup_fake(
    hook: Tensor,
    values: Tensor,
    lengths: Tensor,
    weights: Tensor | None,
    handle: int,
    dims: Sequence[int],
    pooled: bool,
    batch_sizes: Sequence[int] | None,
) -> Tensor:
    shape = output_shape(values.numel(), lengths.numel(), dims, pooled, batch_sizes)
    return torch.empty(shape, dtype=torch.float32, device=hook.device)


def _update_fake(
    gradient: Tensor,
    values: Tensor,
    lengths: Tensor,
    weights: Tensor | None,
    handle: int,
    batch_sizes: Sequence[int] | None,
    after: Tensor | None,
) -> Tensor:
    return torch.empty(1, dtype=torch.float32, device=gradient.device)


def _weight_gradient_fake(
    gradient: Tensor,
    values: Tensor,
    lengths: Tensor,
    handle: int,
    batch_sizes: Sequence[int] | None,
) -> Tensor:
    return torch.empty(values.numel(), dtype=torch.float32, device=gradient.device)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, values, lengths, weights, handle, _, _, batch_sizes = inputs
    ctx.save_for_backward(values, lengths, weights)
    ctx.handle = handle
    ctx.site = find_site(handle)  # A graph outlives its module.
    ctx.batch_sizes = batch_sizes


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    values, lengths, weights = ctx.saved_tensors
    ops = torch.ops.embla
    weight_gradient = hook_gradient = None
    if ctx.needs_input_grad[3]:
        weight_gradient = ops.weight_gradient(
            gradient, values, lengths, ctx.handle, ctx.batch_sizes
        )
    if ctx.needs_input_grad[0]:
        hook_gradient = ops.update(
            gradient, values, lengths, weights, ctx.handle, ctx.batch_sizes, weight_gradient
        )
    return hook_gradient, None, None, weight_gradient, None, None, None, None


def _declare_effects() -> None:
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < _EFFECTS_SINCE:
        return
    from torch._higher_order_ops.effects import EffectType, _register_effectful_op

    for op in (torch.ops.embla.lookup, torch.ops.embla.weight_gradient, torch.ops.embla.update):
        _register_effectful_op(op.default, EffectType.ORDERED)


_library.impl("lookup", _lookup, "CompositeExplicitAutograd")
_library.impl("update", _update, "CompositeExplicitAutograd")
_library.impl("weight_gradient", _weight_gradient, "CompositeExplicitAutograd")
register_fake("embla::lookup", _lookup_fake, lib=_library)
register_fake("embla::update", _update_fake, lib=_library)
register_fake("embla::weight_gradient", _weight_gradient_fake, lib=_library)
register_autograd("embla::lookup", _backward, setup_context=_setup_context, lib=_library)
_declare_effects()
