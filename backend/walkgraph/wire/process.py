"""Common behaviour of a deployment's processes: they die with their parent, and leave Ctrl-C to it."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends; exits if that has already happened."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the parent is gone")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
