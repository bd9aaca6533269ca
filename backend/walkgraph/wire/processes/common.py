"""Common behaviour of the service's processes: they keep one heap. Those of a deployment die with their parent, and
leave Ctrl-C to it."""

import ctypes
import fcntl
import os
import select
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_M_ARENA_MAX = -8


def die_with(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends; exits if that has already happened."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the parent is gone")
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def die_at_end_of(pipe: int) -> None:
    """Have the kernel kill this process when the other end of a pipe is closed, which is when the process that has it
    ends; exits if that has already happened."""
    # The kernel signals one process for each opening of a file, and others may have this one.
    lifeline = os.open(f"/proc/self/fd/{pipe}", os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    ended = select.poll()
    ended.register(lifeline, 0)  # a hang-up is always told
    if ended.poll(0):
        sys.exit("the parent is gone")


def named(name: str) -> None:
    """Give this process a name that tools show; 15 bytes count."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode())


def one_heap() -> None:
    """Have all threads allocate from one heap. By default glibc makes up to eight per core, and what is free in one is
    of no use to the others, so that the process grows for hours. Call it before threads start."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
