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

Eager mode needs none of that, and going through the dispatcher costs as much as a small call does:
there :func:`lookup_eagerly` calls the same functions as one ``torch.autograd.Function``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.library import Library, register_autograd, register_fake
from torch.nn import Parameter

from embla.torch.request import output_shape
from embla.torch.site import Site, find_site

# The first version in which ordered effects work in backward passes, too.
_EFFECTS_SINCE = (2, 14)

_library = Library("embla", "DEF")
# Names of tags that some versions lack; where a layout cannot be fixed exactly, its order can.
_tags = tuple(
    getattr(torch.Tag, name)
    for name in (
        "cudagraph_unsafe",
        "needs_exact_strides"
        if hasattr(torch.Tag, "needs_exact_strides")
        else "needs_fixed_stride_order",
    )
    if hasattr(torch.Tag, name)
)
_library.define(
    "lookup(Tensor hook, Tensor values, Tensor lengths, Tensor? weights, int handle, int[] dims,"
    " bool pooled, SymInt[]? batch_sizes) -> Tensor",
    tags=_tags,
)
_library.define(
    "update(Tensor gradient, Tensor values, Tensor lengths, Tensor? weights, int handle,"
    " SymInt[]? batch_sizes, Tensor? after) -> Tensor",
    tags=_tags,
)
_library.define(
    "weight_gradient(Tensor gradient, Tensor values, Tensor lengths, int handle,"
    " SymInt[]? batch_sizes) -> Tensor",
    tags=_tags,
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
    return _on_device_of(hook, find_site(handle).lookup(values, lengths, weights, batch_sizes))


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
    return _on_device_of(gradient, site.weight_gradient(gradient, values, lengths, batch_sizes))


def _on_device_of(other: Tensor, tensor: Tensor) -> Tensor:
    return tensor if other.is_cpu else tensor.to(other.device)


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


_PLAIN = frozenset((Tensor, Parameter, type(None)))


def is_eager(*tensors: Tensor | None) -> bool:
    """Tell whether tensors have values, and nobody wants to see which operators are called."""
    return (
        not torch.compiler.is_compiling()
        and torch._C._len_torch_dispatch_stack() == 0
        and not torch._C._are_functorch_transforms_active()
        and _PLAIN.issuperset(map(type, tensors))
    )


def lookup_eagerly(
    hook: Tensor,
    values: Tensor,
    lengths: Tensor,
    weights: Tensor | None,
    site: Site,
    batch_sizes: Sequence[int] | None,
) -> Tensor:
    """Do what the operators do, where :func:`is_eager` says that nobody can tell."""
    if torch.is_grad_enabled():
        rows = _EagerLookup.apply(hook, values, lengths, weights, site, batch_sizes)
        return cast(Tensor, rows)
    return _on_device_of(hook, site.lookup(values, lengths, weights, batch_sizes))


class _EagerLookup(torch.autograd.Function):
    """The operators' functions without the dispatcher."""

    @staticmethod
    def forward(
        ctx: Any,
        hook: Tensor,
        values: Tensor,
        lengths: Tensor,
        weights: Tensor | None,
        site: Site,
        batch_sizes: Sequence[int] | None,
    ) -> Tensor:
        ctx.save_for_backward(values, lengths, weights)
        ctx.site = site
        ctx.handle = site.handle
        ctx.batch_sizes = batch_sizes
        return _on_device_of(hook, site.lookup(values, lengths, weights, batch_sizes))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if not is_eager(gradient):
            return _backward(ctx, gradient)[:6]
        values, lengths, weights = ctx.saved_tensors
        site: Site = ctx.site
        weight_gradient = None
        if ctx.needs_input_grad[3]:
            weight_gradient = _on_device_of(
                gradient, site.weight_gradient(gradient, values, lengths, ctx.batch_sizes)
            )
        if ctx.needs_input_grad[0]:
            site.update(gradient, values, lengths, weights, ctx.batch_sizes)
        # Eager code never drops a call, so the update's hook needs no gradient.
        return None, None, None, weight_gradient, None, None


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
