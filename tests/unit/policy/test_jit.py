"""What compiled code has of what it calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fermata.policy import _jit


def _sum(values: Any) -> float:
    total = 0.0
    for value in values:
        total += value
    return total


@pytest.mark.skipif(not _jit.COMPILED, reason="FERMATA_NO_JIT is set: nothing is compiled")
@pytest.mark.parametrize(("decorate", "copied"), [(_jit.routine, False), (_jit.part, True), (_jit.kernel, True)])
def test_a_kernel_has_the_code_of_what_it_calls_but_of_routines(
    monkeypatch: pytest.MonkeyPatch, decorate: Callable[[Any], Any], *, copied: bool
) -> None:
    monkeypatch.setitem(_jit._KERNEL, "cache", False)  # what is found there is not compiled, nor what it calls
    called = decorate(_sum)

    @_jit.kernel
    def twice(values: Any) -> float:
        return called(values) + called(values)  # type: ignore[no-any-return]

    assert twice(np.ones(3)) == 6.0
    (code,) = called.inspect_llvm().values()
    assert ("alwaysinline" in code) == copied
