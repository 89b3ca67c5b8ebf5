"""The kernel's own word about its clock, beside what adjtimex(2) shows of it."""

import ctypes

import pytest

from railnet.kernel import clock_synchronisation


class Libc:
    def __init__(self, state: int) -> None:
        self._state = state

    def adjtimex(self, _: object) -> int:
        return self._state


@pytest.mark.parametrize(("state", "expected"), [(0, True), (1, True), (5, False), (-1, None)])
def test_state_of_the_kernel_is_told(monkeypatch: pytest.MonkeyPatch, state: int, expected: bool | None) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Libc(state))

    assert clock_synchronisation.is_synchronised() is expected


def test_this_kernel_answers() -> None:
    assert clock_synchronisation.is_synchronised() in (True, False)
