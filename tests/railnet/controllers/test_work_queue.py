"""The queue of keys: against a model with a clock of its own, and with threads."""

import random
import threading
import time
from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from railnet.backoff import Backoff
from railnet.controllers import work_queue
from railnet.controllers.work_queue import WorkQueue
from tests.jittered import jittered
from tests.waiting import until

KEYS = st.sampled_from("abcd")
CHANGES = 400  # of each producer
PAUSES = st.sampled_from([0.0, 0.0, 0.5, 1.0, 7.0])


class Idle(Exception):
    """`get` would wait."""


class _Condition(threading.Condition):
    def wait(self, timeout: float | None = None) -> bool:
        raise Idle(timeout)


class Model(RuleBasedStateMachine):
    """The model knows when each key is due, and which keys workers have."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.jitter = 0.0
        self.queue: WorkQueue[str] = WorkQueue(lambda: self.now, lambda: self.jitter)
        self.queue._changed = _Condition()
        self.due: dict[str, float] = {}
        self.earliest: dict[str, float] = {}
        self.failures: Counter[str] = Counter()
        self.busy: set[str] = set()

    def wanted(self, key: str, seconds: float) -> None:
        due = max(self.now + seconds, self.earliest.get(key, 0.0))
        self.due[key] = min(due, self.due.get(key, due))

    def ready(self) -> dict[str, float]:
        return {key: due for key, due in self.due.items() if key not in self.busy}

    @rule(key=KEYS, seconds=PAUSES)
    def add(self, key: str, seconds: float) -> None:
        self.queue.add(key, seconds)
        self.wanted(key, seconds)

    @rule(seconds=st.sampled_from([0.0, 0.25, 1.0, 40.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def get(self) -> None:
        ready = self.ready()
        first = min(ready.values(), default=None)
        if first is None or first > self.now:
            with pytest.raises(Idle) as caught:
                self.queue.get()
            assert caught.value.args == (None if first is None else first - self.now,)
            return
        key = self.queue.get()
        assert key is not None
        assert ready[key] == first  # none that was due earlier has been passed over
        del self.due[key]
        self.earliest.pop(key, None)
        self.busy.add(key)

    @precondition(lambda self: self.busy)
    @rule(data=st.data(), again=st.none() | PAUSES)
    def done(self, data: st.DataObject, again: float | None) -> None:
        key = data.draw(st.sampled_from(sorted(self.busy)))
        self.queue.done(key, again)
        self.busy.remove(key)
        self.failures.pop(key, None)
        if again is not None:
            self.wanted(key, again)

    @precondition(lambda self: self.busy)
    @rule(data=st.data(), asked=PAUSES, jitter=st.sampled_from([0.0, 0.25, 0.75]))
    def failed(self, data: st.DataObject, asked: float, jitter: float) -> None:
        key = data.draw(st.sampled_from(sorted(self.busy)))
        self.jitter = jitter
        pause = self.queue.failed(key, asked)
        self.busy.remove(key)
        assert pause == max(asked, min(0.5 * 2 ** self.failures[key], 60.0) * (1 + jitter) / 2)
        self.failures[key] += 1
        if asked:
            self.earliest[key] = self.now + asked
            if key in self.due:
                self.due[key] = max(self.due[key], self.earliest[key])
        self.wanted(key, pause)

    @invariant()
    def nothing_is_lost(self) -> None:
        assert len(self.queue) == len(self.due.keys() | self.busy)


Model.TestCase.settings = settings(max_examples=50, stateful_step_count=60)
TestModel = pytest.mark.slow(Model.TestCase)


def test_key_added_while_a_worker_has_it_is_handed_out_again_and_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    assert queue.get() == "a"
    for _ in range(5):
        queue.add("a")
    queue.add("b")
    assert queue.get() == "b"  # not "a", which a worker has
    queue.done("b")
    queue.done("a")

    assert queue.get() == "a"
    queue.done("a")
    assert len(queue) == 0


def test_pause_doubles_to_a_minute_and_begins_again_after_a_success() -> None:
    now = [0.0]
    queue: WorkQueue[str] = WorkQueue(lambda: now[0])
    queue.add("a")

    def fail() -> float:
        assert queue.get() == "a"
        pause = queue.failed("a")
        now[0] += pause
        return pause

    assert [fail() for _ in range(9)] == [jittered(one) for one in (0.5, 1, 2, 4, 8, 16, 32, 60, 60)]
    for _ in range(2000):  # the power of two stays a number
        fail()
    assert queue.get() == "a"
    queue.done("a", 0)
    assert fail() == jittered(0.5)


def test_key_is_not_handed_out_before_the_api_server_wants_it() -> None:
    now = [0.0]
    queue: WorkQueue[str] = WorkQueue(lambda: now[0])
    queue.add("a")
    queue.get()
    queue.add("a")  # it has changed meanwhile
    assert queue.failed("a", 20.0) == 20.0
    queue.add("a")  # and changes again
    queue.add("b", 19.0)
    now[0] = 19.0

    assert queue.get() == "b"
    now[0] = 20.0
    assert queue.get() == "a"
    queue.done("a")
    queue.add("a")
    assert queue.get() == "a"  # the next one does not wait


def test_close_ends_every_worker_that_waits_and_every_later_get() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("later", 1000.0)
    found: list[str | None] = []
    workers = [threading.Thread(target=lambda: found.append(queue.get())) for _ in range(4)]
    for worker in workers:
        worker.start()
    queue.close()
    for worker in workers:
        worker.join(20)

    assert found == [None] * 4
    queue.add("now")
    assert queue.get() is None


def test_worker_that_waits_for_a_later_key_takes_an_earlier_one() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("late", 1000.0)
    found: list[str | None] = []
    worker = threading.Thread(target=lambda: found.append(queue.get()))
    worker.start()
    queue.add("soon", 0.05)
    worker.join(20)

    assert found == ["soon"]


def test_entries_of_keys_that_are_added_again_and_again_do_not_pile_up() -> None:
    now = [0.0]
    queue: WorkQueue[str] = WorkQueue(lambda: now[0])
    for _ in range(1000):
        now[0] += 1
        queue.add("a")
        assert queue.get() == "a"
        queue.add("a")
        queue.add("a", 5.0)
        queue.done("a", 3.0)

    assert len(queue._order) < 10


class Reconciled:
    """Keys that producers change and workers look at. A worker sees every change that came before it took the key."""

    def __init__(self) -> None:
        self.queue: WorkQueue[int] = WorkQueue()
        self.changed, self.seen = Counter[int](), Counter[int]()
        self.wrong: list[str] = []
        self._busy: set[int] = set()
        self._lock = threading.Lock()

    def produce(self, seed: int) -> None:
        chosen = random.Random(seed)  # noqa: S311 - no secrets
        for _ in range(CHANGES):
            key = chosen.randrange(5)
            with self._lock:
                self.changed[key] += 1
            self.queue.add(key, chosen.choice([0, 0, 0, 0.001]))

    def work(self, seed: int) -> None:
        chosen = random.Random(seed)  # noqa: S311 - no secrets
        while (key := self.queue.get()) is not None:
            fails = chosen.random() < 0.2
            self._look(key, chosen.choice([0, 0.0005]), fails)
            if fails:
                self.queue.failed(key)
            else:
                self.queue.done(key)

    def _look(self, key: int, seconds: float, fails: bool) -> None:
        with self._lock:
            if key in self._busy:
                self.wrong.append(f"two workers have {key}")
            self._busy.add(key)
            count = self.changed[key]
        time.sleep(seconds)
        with self._lock:
            self._busy.discard(key)
            if not fails:
                self.seen[key] = count


@pytest.mark.parametrize("workers", [1, 4])
def test_no_change_is_lost_and_no_key_has_two_workers(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_queue, "_BACKOFF", Backoff(0.001, 60.0))
    keys = Reconciled()
    producers = [threading.Thread(target=keys.produce, args=(seed,)) for seed in range(3)]
    for thread in producers + [threading.Thread(target=keys.work, args=(9 + n,), daemon=True) for n in range(workers)]:
        thread.start()
    for thread in producers:
        thread.join(60)
    until(lambda: len(keys.queue) == 0, 60, "every key was handled")
    keys.queue.close()

    assert keys.wrong == []
    assert sum(keys.changed.values()) == 3 * CHANGES
    assert keys.seen == keys.changed
