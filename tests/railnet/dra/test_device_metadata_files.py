"""The files of claims that containers get."""

import json
import logging
from errno import EIO
from pathlib import Path
from typing import Any

import pytest

from railnet.dra.device_metadata_files import DeviceMetadataFiles
from tests.railnet.dra.claims import FIRST, a_prepared_claim, a_request

CLAIM = a_prepared_claim(a_request("a"), a_request("b"))
NETWORK = {FIRST: {"interfaceName": "net1", "ips": []}}


@pytest.fixture
def files(tmp_path: Path) -> DeviceMetadataFiles:
    return DeviceMetadataFiles(tmp_path / "device-metadata")


def newest(files: DeviceMetadataFiles, request: str) -> Any:
    text = files.path("a1b2", request).read_text()
    return json.JSONDecoder().raw_decode(text)[0]


def test_each_request_has_a_file_that_any_user_may_read(files: DeviceMetadataFiles) -> None:
    files.write(CLAIM, {})

    for request in ("a", "b"):
        assert files.path("a1b2", request).stat().st_mode & 0o777 == 0o644
        assert newest(files, request)["requests"][0]["name"] == request


def test_network_stays_when_kubelet_asks_to_prepare_again(files: DeviceMetadataFiles) -> None:
    files.write(CLAIM, {})
    files.tell_network(CLAIM, {}, NETWORK)
    files.write(CLAIM, {})

    assert newest(files, "a")["requests"][0]["devices"][0]["networkData"] == NETWORK[FIRST]


def test_file_that_was_lost_is_written_again(files: DeviceMetadataFiles) -> None:
    files.write(CLAIM, {})
    files.path("a1b2", "a").unlink()
    files.write(CLAIM, {})

    assert newest(files, "a")["metadata"]["generation"] == 1


def test_claim_that_is_unprepared_meanwhile_gets_no_file(files: DeviceMetadataFiles) -> None:
    files.tell_network(CLAIM, {}, NETWORK)

    assert not files.folder.exists()


def test_refused_write_of_the_network_is_logged_and_raises_nothing(
    files: DeviceMetadataFiles, caplog: pytest.LogCaptureFixture
) -> None:
    files.path("a1b2", "a").mkdir(parents=True)
    files.tell_network(CLAIM, {}, NETWORK)

    assert "the containers of claim ml/train-vf are not told of its interfaces" in caplog.text


def test_removal_is_idempotent(files: DeviceMetadataFiles) -> None:
    files.remove("a1b2")
    files.write(CLAIM, {})
    files.remove("a1b2")
    files.remove("a1b2")

    assert list(files.folder.iterdir()) == []


def test_sweep_leaves_prepared_claims_alone(files: DeviceMetadataFiles, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    files.sweep(())  # there is no folder yet
    files.write(CLAIM, {})
    (files.folder / "c3d4").mkdir()
    files.sweep({"a1b2"})

    assert [path.name for path in files.folder.iterdir()] == ["a1b2"]
    assert caplog.text == ""


def test_sweep_tries_a_refused_removal_once_more(files: DeviceMetadataFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write(CLAIM, {})
    rmdir, refusals = Path.rmdir, [OSError(EIO, "Input/output error")]

    def refused_once(folder: Path) -> None:
        if refusals:
            raise refusals.pop()
        rmdir(folder)

    monkeypatch.setattr(Path, "rmdir", refused_once)
    files.sweep([])

    assert (refusals, list(files.folder.iterdir())) == ([], [])
