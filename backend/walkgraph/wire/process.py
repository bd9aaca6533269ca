"""Common behaviour of the service's processes: they keep one heap. Those of a deployment die with their parent, and
leave Ctrl-C to it."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_M_ARENA_MAX = -8


def die_with(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends; exits if that has already happened."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the parent is gone")
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def one_heap() -> None:
    """Have all threads allocate from one heap. By default glibc makes up to eight per core, and what is free in one is
    of no use to the others, so that the process grows for hours. Call it before threads start."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
