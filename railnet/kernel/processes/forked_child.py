"""Runs a function in a forked child: a library that is needed once takes no memory of a process that lives for long.

Python returns little of such memory, and a module that was imported stays.
"""

import os
import pickle
from collections.abc import Callable
from traceback import format_exc
from typing import NoReturn, TypeVar

from railnet.kernel.processes.parent_death import die_with_parent

_Result = TypeVar("_Result")


def in_child(function: Callable[[], _Result]) -> _Result:
    """Return what `function` returns in a child process, or raise what it raises there; either must be fit for pickle.

    Call it before there are other threads: a child has the locks that they hold, and not the threads. The child ends with this thread.
    If the kernel refuses a process, `function` runs in this one: to start is worth more than memory.

    Raises:
        ChildProcessError: the child has ended without an answer, such as by a signal.
        Exception: what `function` raises; a note has the stack in the child.
    """
    parent = os.getpid()
    answer, far_end = os.pipe()
    try:
        child = os.fork()
    except OSError:
        os.close(answer)
        os.close(far_end)
        return function()
    if child == 0:
        _answer(function, parent, answer, far_end)
    os.close(far_end)
    with open(answer, "rb") as pipe:
        outcome = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != 0:
        raise ChildProcessError(f"a child process has ended without an answer: its status is {status}")
    result, error = pickle.loads(outcome)  # noqa: S301 - this program has written it
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def _answer(function: Callable[[], object], parent: int, answer: int, far_end: int) -> NoReturn:
    """Be the child."""
    status = 1
    try:
        os.close(answer)  # while a process could read the pipe, a write to a full pipe would wait
        die_with_parent()  # `function` may hang, and what has ended the parent knows no child
        if os.getppid() == parent:
            with open(far_end, "wb") as pipe:
                pickle.dump(_outcome(function), pipe)
            status = 0
    finally:
        os._exit(status)  # nothing of the parent's is flushed or ended twice


def _outcome(function: Callable[[], object]) -> tuple[object, Exception | None]:
    try:
        return function(), None
    except Exception as error:  # noqa: BLE001 - the parent raises it
        error.add_note(f"in the child process:\n{format_exc()}")  # pickle keeps notes, and no traceback
        return None, error
