"""Reconciling key after key, by threads that share a queue."""

import logging
import threading
from collections.abc import Callable, Hashable
from typing import TypeVar

from railnet.apiserver.client import RequestFailed
from railnet.controllers.work_queue import WorkQueue

_log = logging.getLogger(__name__)
_Key = TypeVar("_Key", bound=Hashable)


def start(queue: WorkQueue[_Key], reconcile: Callable[[_Key], float | None], workers: int, title: str) -> None:
    """Start threads that reconcile until the queue is closed.

    Args:
        queue: the keys.
        reconcile: brings what belongs to a key to what it should be; returns the seconds after which it should look again, or None.
            An error means that it is called again after a pause.
        workers: how many threads.
        title: what the threads do, for the log.
    """
    for number in range(workers):
        threading.Thread(target=_work, args=(queue, reconcile, title), name=f"{title} {number}", daemon=True).start()


def _work(queue: WorkQueue[_Key], reconcile: Callable[[_Key], float | None], title: str) -> None:
    while (key := queue.get()) is not None:
        try:
            again = reconcile(key)
        except RequestFailed as error:
            pause = queue.failed(key, error.retry_after)
            _log.warning("%s of %s: %s; trying again in %.1f s", title, key, error, pause)
        except Exception:  # noqa: BLE001 - one key that fails must not end the work on all others
            pause = queue.failed(key)
            _log.exception("%s of %s failed; trying again in %.1f s; report this error", title, key, pause)
        else:
            queue.done(key, again)
