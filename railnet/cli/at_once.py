"""Does the same for many items at once, for a command that a person may end at any time."""

import threading
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import NamedTuple, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class _Done(NamedTuple):
    position: int
    result: object
    error: BaseException | None


def each_at_once(work: Callable[[_Item], _Result], items: Iterable[_Item], most: int) -> list[_Result]:
    """Return what `work` returns for each item, in their order. At most `most` items are worked on at once, each in a thread.

    Ctrl-C ends the wait at once: the threads end with the program. A ThreadPoolExecutor would wait for each item that is begun, and a command
    on a node that hangs takes minutes.

    Raises:
        BaseException: what `work` raises; the other results are dropped.
    """
    listed = list(items)
    left, lock = iter(enumerate(listed)), threading.Lock()
    done: SimpleQueue[_Done] = SimpleQueue()

    def serve() -> None:
        while True:
            with lock:
                position, item = next(left, (-1, None))
            if position < 0:
                return
            try:
                done.put(_Done(position, work(item), None))  # type: ignore[arg-type]  # None stands for no item alone
            except BaseException as error:  # noqa: BLE001 - it is raised again by the thread that waits
                done.put(_Done(position, None, error))

    for _ in range(min(most, len(listed))):
        threading.Thread(target=serve, name="at once", daemon=True).start()
    results: dict[int, object] = {}
    for _ in listed:
        outcome = done.get()
        if outcome.error is not None:
            raise outcome.error
        results[outcome.position] = outcome.result
    return [results[position] for position in range(len(listed))]  # type: ignore[misc]  # each is what `work` returned
