"""The C library's allocator."""

from railnet.kernel.libc import LIBC

_ARENA_MAX = -8  # M_ARENA_MAX of glibc's malloc.h


def share_one_arena() -> None:
    """Have all threads allocate from one arena. Call it before there are other threads.

    glibc gives each new thread an arena of its own, up to eight for each processor (mallopt(3)). Memory that is free in one is
    not used by another, so a daemon of fifty threads holds a mebibyte more, and on a node with many processors more than that.
    """
    LIBC.mallopt(_ARENA_MAX, 1)
