from pathlib import Path

import pytest

from simnode.linux import libc, netns


def test_new_namespace_does_not_forward_where_the_machine_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    unshare, path = libc.unshare, tmp_path / "namespace"

    def unshare_on_a_machine_that_forwards(flags: int) -> None:
        unshare(flags)
        netns.FORWARD.write_text("1")

    monkeypatch.setattr(libc, "unshare", unshare_on_a_machine_that_forwards)
    netns.create(path)
    forwards = netns.run_inside(path, netns.FORWARD.read_text)
    netns.remove(path)

    assert forwards == "0\n"
