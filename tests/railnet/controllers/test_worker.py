"""The threads that reconcile: what they do with success, the API server's failures and errors."""

import threading

import pytest

from railnet.apiserver.client import RequestFailed
from railnet.backoff import Backoff
from railnet.controllers import work_queue, worker
from railnet.controllers.work_queue import WorkQueue
from tests.waiting import until


def test_key_is_reconciled_until_that_succeeds_and_again_when_it_asks_for_that(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_queue, "_BACKOFF", Backoff(0.001, 60.0))
    results = [RequestFailed("HTTP 500"), KeyError("planted"), RequestFailed("slow down", 429, 0.01), 0.01, None]
    seen: list[str] = []
    queue: WorkQueue[str] = WorkQueue()

    def reconcile(key: str) -> float | None:
        seen.append(key)
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    worker.start(queue, reconcile, 2, "names")
    queue.add("a")
    until(lambda: not results and not len(queue), 20, "the key is done")
    queue.close()

    assert seen == ["a"] * 5
    assert [one.getMessage() for one in caplog.records] == [
        "names of a: HTTP 500; trying again in 0.0 s",
        "names of a failed; trying again in 0.0 s; report this error",
        "names of a: slow down; trying again in 0.0 s",
    ]
    assert "planted" in caplog.text


def test_key_that_always_fails_does_not_keep_others_waiting() -> None:
    queue: WorkQueue[str] = WorkQueue()
    done = threading.Event()

    def reconcile(key: str) -> None:
        if key == "bad":
            raise ValueError
        done.set()

    worker.start(queue, reconcile, 1, "names")
    queue.add("bad")
    queue.add("good")

    assert done.wait(20)
    queue.close()


def test_threads_end_when_the_queue_is_closed() -> None:
    queue: WorkQueue[str] = WorkQueue()
    worker.start(queue, lambda _: None, 3, "closing")

    def running() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name.startswith("closing ")]

    assert sorted(running()) == ["closing 0", "closing 1", "closing 2"]
    queue.close()
    until(lambda: not running(), 20, "the threads end")
