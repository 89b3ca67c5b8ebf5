"""Input that is valid where it stands and nonsense where it is used: each has its own code, none a traceback."""

from pathlib import Path

import pytest

from cni.host import chain, frames
from cni.host.chain import add
from cni.host.errors import CONFIGURATION, CniError
from cni.host.frames import FrameError
from tests.cni.host.fake_runner import Runner, a_primary
from tests.cni.host.test_daemon import Executable


@pytest.mark.parametrize("capabilities", ['["portMappings"]', '"portMappings"', "7"])
def test_primary_whose_capabilities_are_no_object_is_broken(capabilities: str) -> None:
    with pytest.raises(CniError) as raised:
        chain.parse(f'{{"plugins": [{{"type": "bridge", "capabilities": {capabilities}}}]}}'.encode(), "/p")

    assert raised.value.code == CONFIGURATION


def test_plugin_type_with_a_nul_is_broken() -> None:
    with pytest.raises(CniError):
        chain.parse(b'{"type": "bridge\\u0000"}', "/p")


def test_primary_path_with_a_nul_is_a_configuration_error() -> None:
    with pytest.raises(CniError) as raised:
        chain.load("/etc/cni\0")

    assert raised.value.code == CONFIGURATION


def test_portmap_with_runtime_config_null_is_left_out() -> None:
    runner = Runner()

    runner.drive(add(a_primary("bridge", {"type": "portmap", "runtimeConfig": None}), {}))

    assert runner.calls == ["ADD bridge"]


@pytest.mark.parametrize(
    "sent",
    [frames.frame(frames.DONE), frames.frame(frames.EXEC, frames.u32(1) + frames.blobs(b"\xff", b"", b""))],
    ids=["empty DONE", "plugin that is not text"],
)
def test_frame_of_the_daemons_that_is_odd_is_refused_as_such(tmp_path: Path, sent: bytes) -> None:
    executable = Executable()

    with pytest.raises(FrameError):
        executable.serve(lambda peer: peer.send(sent), tmp_path)

    executable.close()
