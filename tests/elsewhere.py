"""A device that is elsewhere, for machines without a GPU: it computes on the processor, but shares nothing with it.

Its tensors say that they are on `meta`. They compute as others do, so results can be compared bit for bit; an operation
that mixes them with tensors of the processor fails, as it does on a GPU, and so does reading them as arrays.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

ELSEWHERE = torch.device("meta")
_aten = torch.ops.aten
_MOVES = {_aten._to_copy.default, _aten.copy_.default}


class Away(torch.Tensor):
    """A tensor of the device; `here` is what it holds."""

    here: torch.Tensor

    @staticmethod
    def __new__(cls, here: torch.Tensor) -> Away:
        away = torch.Tensor._make_wrapper_subclass(
            cls, here.size(), strides=here.stride(), dtype=here.dtype, device=ELSEWHERE
        )
        away.here = here
        return away

    def __reduce_ex__(self, protocol: Any) -> Any:  # as a file has it, which can be loaded anywhere
        return self.here.__reduce_ex__(protocol)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _done(func, args, kwargs or {})


class Elsewhere(TorchDispatchMode):
    """While it is entered, tensors can be made on the device and moved there; `done` counts what was computed on it."""

    done = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not kwargs and not any(map(_has_away, args)):
            return func(*args)
        self.done += any(isinstance(each, Away) for each in tree_leaves((args, kwargs)))
        return _done(func, args, kwargs)


def _has_away(each: Any) -> bool:
    return isinstance(each, Away) or (isinstance(each, list | tuple) and any(map(_has_away, each)))


def _done(func: Any, args: Any, kwargs: Any) -> Any:
    """Compute where the arguments are, and return what comes out there."""
    given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
    away = [each for each in given if isinstance(each, Away)]
    # Single numbers may come from the processor on a GPU, too.
    if away and func not in _MOVES and any(not isinstance(each, Away) and each.dim() for each in given):
        raise RuntimeError(f"{func} mixes tensors of two devices")
    wanted = kwargs.get("device")
    if wanted is not None:
        kwargs = kwargs | {"device": torch.device("cpu")}
    known = {id(each.here): each for each in away}  # what changes in place stays the same tensor
    bare_args, bare_kwargs = tree_map(lambda each: each.here if isinstance(each, Away) else each, (args, kwargs))
    out = func(*bare_args, **bare_kwargs)
    if func is _aten.copy_.default:
        return args[0]
    if not (away if wanted is None else wanted == ELSEWHERE):
        return out

    def wrapped(each: Any) -> Any:
        if not isinstance(each, torch.Tensor):
            return each
        return known[id(each)] if id(each) in known else Away(each)

    return tree_map(wrapped, out)
