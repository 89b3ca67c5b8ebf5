"""When a node has the driver of DRA, and what kubelet's file says of other claims."""

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from railnet.configuration import Configuration, HostConfiguration
from railnet.daemon import dra_composition
from railnet.daemon.kubelet_folder import KubeletSearch
from railnet.dra.device_metadata_files import DeviceMetadataFiles
from railnet.dra.prepared_claim_files import PreparedClaims
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
