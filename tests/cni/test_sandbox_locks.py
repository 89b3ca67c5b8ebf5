"""One operation at a time for each key; lock files that no process holds are removed."""

import asyncio
import os
import posix
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from cni.host import lock
from cni.sandbox_locks import PerKey, remove_unheld


class Log:
    """Operations that note when they begin and end."""

    def __init__(self) -> None:
        self.events: list[str] = []

    async def operate(self, locks: PerKey, key: str, name: str) -> None:
        async with locks.held(key):
            self.events.append(f"{name} begins")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            self.events.append(f"{name} ends")


def run(main: Callable[[PerKey], Awaitable[None]]) -> PerKey:
    async def whole() -> PerKey:
        locks = PerKey()
        await main(locks)
        return locks

    return asyncio.run(whole())


def test_operations_of_one_key_wait_in_order_of_arrival() -> None:
    log = Log()

    run(lambda locks: asyncio.gather(*(log.operate(locks, "a", name) for name in "123")))

    assert log.events == ["1 begins", "1 ends", "2 begins", "2 ends", "3 begins", "3 ends"]


def test_operations_of_two_keys_do_not_wait() -> None:
    log = Log()

    run(lambda locks: asyncio.gather(log.operate(locks, "a", "1"), log.operate(locks, "b", "2")))

    assert log.events[:2] == ["1 begins", "2 begins"]


def test_nothing_is_kept_of_a_key_that_is_free() -> None:
    log = Log()

    locks = run(lambda locks: asyncio.gather(*(log.operate(locks, "a", name) for name in "123")))

    assert (locks._locks, locks._users) == ({}, {})


def test_lock_is_free_again_when_its_operation_failed() -> None:
    log = Log()

    async def main(locks: PerKey) -> None:
        with pytest.raises(OSError, match="odd"):
            async with locks.held("a"):
                raise OSError("odd")
        await asyncio.wait_for(log.operate(locks, "a", "1"), 60)

    assert run(main)._locks == {}


def test_waiting_operation_that_is_given_up_does_not_hold_the_next_up() -> None:
    log = Log()

    async def main(locks: PerKey) -> None:
        async with locks.held("a"):
            waiting = asyncio.create_task(log.operate(locks, "a", "given up"))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait((waiting,))
        await asyncio.wait_for(log.operate(locks, "a", "1"), 60)

    assert run(main)._locks == {}
    assert log.events == ["1 begins", "1 ends"]


def test_key_is_held_while_a_task_has_its_lock_or_awaits_it() -> None:
    async def main(locks: PerKey) -> None:
        found = [locks.is_held("a")]
        async with locks.held("a"):
            found += [locks.is_held("a"), locks.is_held("b")]
        assert [*found, locks.is_held("a")] == [False, True, False, False]

    run(main)


# The executables' locks.


def test_locks_that_no_process_holds_are_removed(tmp_path: Path) -> None:
    held = lock.acquire(str(tmp_path / "alive@eth0"))
    os.close(lock.acquire(str(tmp_path / "killed@eth0")))

    remove_unheld(tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["alive@eth0"]
    lock.remove(str(tmp_path / "alive@eth0"), held)


def test_lock_that_another_request_makes_just_then_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "busy@eth0"
    os.close(lock.acquire(str(path)))
    taken: list[int] = []

    def opened(*arguments: object) -> int:
        """Open the lock; then it is removed, and another request makes and takes a new one."""
        fd = real(*arguments)
        if not taken:
            path.unlink()
            taken.append(-1)
            taken.append(lock.acquire(str(path)))
        return fd

    real = posix.open
    monkeypatch.setattr(posix, "open", opened)
    remove_unheld(tmp_path)

    assert path.exists()
    lock.remove(str(path), taken[1])


def test_folder_that_is_not_there_has_no_locks(tmp_path: Path) -> None:
    remove_unheld(tmp_path / "none")


def test_folder_that_is_named_like_a_lock_is_removed_and_keeps_no_other(tmp_path: Path) -> None:
    (tmp_path / "a@eth0").mkdir()
    (tmp_path / "b@eth0" / "inside").mkdir(parents=True)
    (tmp_path / "c@eth0").touch()

    with pytest.raises(OSError, match="remove the folder"):
        remove_unheld(tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["b@eth0"]
