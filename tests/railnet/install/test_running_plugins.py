"""Which requests an installation waits for."""

from pathlib import Path

import pytest

from railnet.install import running_plugins


def test_request_whose_execve_has_not_ended_at_the_first_moment_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(running_plugins.time, "sleep", pauses.append)
    monkeypatch.setattr(running_plugins, "requests", lambda _: frozenset((7,) if pauses else ()))

    assert running_plugins.await_end(Path("/"), 0.0) == {7}
    assert pauses[0] > 0


def test_request_that_begins_later_is_not_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter(({7}, {8}, {8}))
    monkeypatch.setattr(running_plugins.time, "sleep", lambda _: None)
    monkeypatch.setattr(running_plugins, "requests", lambda _: frozenset(next(looks)))

    assert running_plugins.await_end(Path("/"), 1.0) == frozenset()
