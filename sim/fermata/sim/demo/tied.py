"""Become another program that does not outlive its parent: `python -m fermata.sim.demo.tied PARENT_PID PROGRAM ARG...`.

On Linux the kernel sends SIGTERM when the parent dies, however it dies; the wish survives `exec`. Elsewhere the parent
has only its own clean-up. A program of its own, because code between fork and exec is not safe in a process with
threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to its parent and become the program."""
    parent = int(sys.argv[1])
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # The parent may have died before the tie held.
    if os.getppid() == parent:
        os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 - our own programs


if __name__ == "__main__":
    main()
