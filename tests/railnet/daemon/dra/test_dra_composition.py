"""When a node has the driver of DRA, and what kubelet's file says of other claims."""

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from railnet.configuration import Configuration, HostConfiguration
from railnet.daemon.dra import dra_composition
from railnet.daemon.kubelet_folder import KubeletSearch
from railnet.dra.device_metadata_files import DeviceMetadataFiles
from railnet.dra.prepared_claim_files import PreparedClaims
from railnet.errors import NotReady
from railnet.vf.pci_address import PciAddress
from tests.railnet.kubelet.dra_state import a_claim, a_state

CONTENTS = {
    "a claim": (a_state(a_claim()), True),
    "a claim that was never answered": (a_state(a_claim(devices=())), True),
    "a claim of another driver": (a_state(a_claim(DriverState={"gpu.example.com": {"Devices": []}})), False),
    "no claim": (a_state(), False),
    "absent": (None, False),
    "cut short": (a_state(a_claim())[:-40], False),
}


@pytest.mark.parametrize(("content", "expected"), CONTENTS.values(), ids=CONTENTS.keys())
@pytest.mark.parametrize(("offer", "recorded"), [("device-plugin", False), ("device-plugin", True), ("dra", False)])
def test_driver_is_there_if_kubelet_may_need_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: bytes | None,
    expected: bool,
    offer: str,
    recorded: bool,
) -> None:
    metadata = SimpleNamespace(FILES=DeviceMetadataFiles(tmp_path / "metadata"))
    monkeypatch.setattr(dra_composition, "device_metadata", metadata)
    monkeypatch.setenv("NODE_NAME", "node-a")
    (tmp_path / "claims").mkdir()
    if recorded:
        (tmp_path / "claims/a1b2.json").touch()  # it is put aside as unreadable
    if content is not None:
        (tmp_path / "dra_manager_state").write_bytes(content)
    host = HostConfiguration(root=tmp_path, kubelet=Path("/"))
    claims, parts = PreparedClaims(tmp_path / "claims"), SimpleNamespace(attached=lambda _: None)
    node: Any = SimpleNamespace(claims=claims, attachments=parts)
    slices: Any = SimpleNamespace(publisher=None, devices=dict)
    composed = dra_composition.drivers(
        replace(Configuration(host=host), offer=offer), node, KubeletSearch(host), (), slices, lambda: None
    )

    assert bool(asyncio.run(composed)) is (expected or recorded or offer == "dra")


def by_other_claims(folder: Path, content: bytes | None, *, recorded: bool) -> dict[PciAddress, str]:
    """Return which VFs other claims than claim-1 have, by kubelet's file with this content."""
    if content is not None:
        (folder / "dra_manager_state").write_bytes(content)
    kubelet = KubeletSearch(HostConfiguration(root=folder, kubelet=Path("/")))
    return asyncio.run(dra_composition._by_other_claims(kubelet, "claim-1", lambda: recorded))


def test_device_that_is_no_vf_costs_its_own_entry_alone(tmp_path: Path) -> None:
    mixed = a_claim("claim-2", devices=("gpu-0", "pci-0000-03-00-2"))
    content = a_state(a_claim(), mixed, a_claim("claim-3", devices=("pci-0000-03-00-3",)))

    told = by_other_claims(tmp_path, content, recorded=False)

    assert told.keys() == {PciAddress.parse("0000:03:00.2"), PciAddress.parse("0000:03:00.3")}


UNKNOWN = {"absent": None, "cut short": a_state(a_claim())[:-40], "empty": b"", "another format": b'{"claims": []}'}
unknown = pytest.mark.parametrize("content", UNKNOWN.values(), ids=UNKNOWN.keys())


@unknown
def test_no_claim_is_prepared_while_neither_a_record_nor_kubelets_file_says_what_others_have(
    tmp_path: Path, content: bytes | None
) -> None:
    with pytest.raises(NotReady, match=r"it is not known which VFs other claims have.*kubelet tries again"):
        by_other_claims(tmp_path, content, recorded=False)


@unknown
def test_records_alone_guard_where_kubelets_file_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    assert by_other_claims(tmp_path, content, recorded=True) == {}
