"""Where the daemon finds plugins on a host whose root is another folder."""

from pathlib import Path

import pytest

from cni.host_delegates import _find


@pytest.mark.parametrize("target", ["/k3s/0123abcd/cni", "../0123abcd/cni"])
def test_plugin_that_is_a_link_is_found_where_the_host_has_it(tmp_path: Path, target: str) -> None:
    (tmp_path / "k3s/0123abcd").mkdir(parents=True)
    (tmp_path / "k3s/0123abcd/cni").touch()
    (tmp_path / "k3s/bin").mkdir()
    (tmp_path / "k3s/bin/bridge").symlink_to(target)

    assert (
        _find("bridge", "/opt/cni/bin:/k3s/bin", tmp_path) == "/k3s/bin/bridge"
    )  # the name tells the program which plugin it is
    assert _find("flannel", "/opt/cni/bin:/k3s/bin", tmp_path) is None
