"""The slow lane's one question: has this pod a rail? (What it runs is tested through the executable.)"""

import json
from pathlib import Path

import pytest

from cni.host import netconf, slow
from cni.host.errors import TRY_AGAIN, CniError
from cni.host.netconf import NetConf
from tests.cni.host.plugins import an_environment

RAIL = "rdma/ib_vf"


def a_conf(kubelet: Path) -> NetConf:
    return netconf.parse(json.dumps({"cniVersion": "1.0.0", "primary": "/p", "kubelet": str(kubelet)}).encode())


def checkpoint(kubelet: Path, content: bytes) -> None:
    (kubelet / "device-plugins").mkdir()
    (kubelet / "device-plugins/kubelet_internal_checkpoint").write_bytes(content)


def entries(pod_uid: str, resource: str) -> bytes:
    entry = {"PodUID": pod_uid, "ResourceName": resource, "DeviceIDs": {"0": ["0000:03:00.1"]}}
    return json.dumps({"Data": {"PodDeviceEntries": [entry]}}).encode()


@pytest.mark.parametrize(
    ("pod_uid", "resource", "expected"),
    [("uid-1", RAIL, True), ("uid-2", RAIL, False), ("uid-1", "nvidia.com/gpu", False)],
    ids=["its own", "another pod's", "another resource"],
)
def test_pod_has_a_rail_when_the_checkpoint_lists_one(tmp_path, pod_uid: str, resource: str, expected: bool) -> None:
    checkpoint(tmp_path, entries(pod_uid, resource))

    assert slow.has_rails(an_environment(tmp_path), a_conf(tmp_path)) is expected


def test_pod_has_no_rail_when_kubelet_never_gave_any_device(tmp_path: Path) -> None:
    (tmp_path / "device-plugins").mkdir()

    assert slow.has_rails(an_environment(tmp_path), a_conf(tmp_path)) is False


def test_sandbox_that_is_no_pod_has_no_rail(tmp_path: Path) -> None:
    assert slow.has_rails(an_environment(tmp_path, CNI_ARGS=""), a_conf(tmp_path / "missing")) is False


def test_pod_must_try_again_when_kubelets_folder_is_missing(tmp_path: Path) -> None:
    with pytest.raises(CniError, match=rf"there is no folder {tmp_path}/device-plugins") as raised:
        slow.has_rails(an_environment(tmp_path), a_conf(tmp_path))

    assert raised.value.code == TRY_AGAIN


@pytest.mark.parametrize("content", [b"", b"{}", b"[" * 100_000], ids=["empty", "without data", "deep"])
def test_pod_must_try_again_when_the_checkpoint_is_not_understood(tmp_path: Path, content: bytes) -> None:
    checkpoint(tmp_path, content)

    with pytest.raises(CniError, match="cannot be read") as raised:
        slow.has_rails(an_environment(tmp_path), a_conf(tmp_path))

    assert raised.value.code == TRY_AGAIN


def test_pod_must_try_again_when_the_runtime_did_not_say_its_uid(tmp_path: Path) -> None:
    checkpoint(tmp_path, entries("uid-1", RAIL))

    with pytest.raises(CniError, match="did not say K8S_POD_UID") as raised:
        slow.has_rails(an_environment(tmp_path, CNI_ARGS="K8S_POD_NAME=train-0"), a_conf(tmp_path))

    assert raised.value.code == TRY_AGAIN
