"""After an ADD the files of the pod's claims get its interfaces; a write that fails costs nothing else."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cni.rail_observers import AddRefused, RailChanged, RailsAttached
from railnet.daemon.dra import device_metadata
from railnet.daemon.dra.device_metadata import DeviceMetadata
from railnet.dra.device_metadata_files import DeviceMetadataFiles
from railnet.dra.prepared_claim_files import PreparedClaims
from tests.railnet.dra.claims import FIRST, a_prepared_claim
from tests.railnet.vf.builders import a_record, an_attachment

ATTACHED = RailsAttached(a_record(an_attachment(vf=FIRST)), b"{}", False)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeviceMetadataFiles:
    files = DeviceMetadataFiles(tmp_path / "device-metadata")
    monkeypatch.setattr(device_metadata, "FILES", files)
    files.write(a_prepared_claim(), {})
    return files


def observed(tmp_path: Path, event: RailsAttached) -> list[Any]:
    """Report an ADD, and wait until its files are written; return what the next observer was told."""
    claims, told = PreparedClaims(tmp_path / "claims"), list[AddRefused | RailChanged | RailsAttached]()
    claims.write(a_prepared_claim())

    async def report() -> None:
        metadata = DeviceMetadata(Path("/"), claims, dict)
        metadata.before(told.append)(event)
        await asyncio.gather(*metadata._running)

    asyncio.run(report())
    return told


def test_files_of_the_pods_claims_get_its_interfaces(
    tmp_path: Path, files: DeviceMetadataFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_metadata, "macs_of_rails", lambda *_: {"net1": "00:00:10:27"})

    assert observed(tmp_path, ATTACHED) == [ATTACHED]
    newest, _ = json.JSONDecoder().raw_decode(files.path("a1b2", "vf").read_text())
    (device,) = newest["requests"][0]["devices"]
    assert device["networkData"] == {
        "interfaceName": "net1",
        "ips": ["10.56.3.1/16"],
        "hardwareAddress": "00:00:10:27",
    }


def test_failure_is_logged_and_the_next_observer_is_told(
    tmp_path: Path, files: DeviceMetadataFiles, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> dict[str, str]:
        raise OSError("Too many open files")

    monkeypatch.setattr(device_metadata, "macs_of_rails", refuse)

    assert observed(tmp_path, ATTACHED) == [ATTACHED]
    assert "of sandbox c0ffee are not told of their interfaces: Too many open files" in caplog.text


def test_pod_without_a_claim_causes_no_work(tmp_path: Path, files: DeviceMetadataFiles) -> None:
    before = files.path("a1b2", "vf").read_bytes()
    other = RailsAttached(a_record(), b"{}", False)

    assert observed(tmp_path, other) == [other]
    assert files.path("a1b2", "vf").read_bytes() == before
