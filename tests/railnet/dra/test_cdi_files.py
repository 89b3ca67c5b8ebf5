"""The files of claims in the host's folder of CDI specifications."""

import logging
import os
from pathlib import Path

import pytest

from railnet.dra import cdi_spec
from railnet.dra.cdi_files import CdiFiles
from tests.railnet.dra.claims import METADATA, a_prepared_claim

NAME = cdi_spec.file_name("a1b2")


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Make a host whose /var/run is an absolute link, as Debian's."""
    for folder in ("run", "var"):
        (tmp_path / folder).mkdir()
    (tmp_path / "var/run").symlink_to("/run")
    return tmp_path


def names(host: Path) -> list[str]:
    return sorted(path.name for path in (host / "run/cdi").iterdir())


def test_file_is_written_where_the_host_has_it(host: Path) -> None:
    CdiFiles(host, METADATA).write(a_prepared_claim())

    path = host / "run/cdi" / NAME
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (cdi_spec.encode(a_prepared_claim(), METADATA), 0o644)
    assert names(host) == [NAME]


def test_file_is_written_again_only_when_it_differs(host: Path) -> None:
    files, path = CdiFiles(host, METADATA), host / "run/cdi" / NAME
    files.write(a_prepared_claim())
    os.utime(path, ns=(1, 1))
    files.write(a_prepared_claim())
    kept = path.stat().st_mtime_ns
    path.write_text("{}")
    files.write(a_prepared_claim())

    assert kept == 1
    assert path.read_bytes() == cdi_spec.encode(a_prepared_claim(), METADATA)


def test_removal_is_idempotent(host: Path) -> None:
    files = CdiFiles(host, METADATA)
    files.remove("a1b2")
    files.write(a_prepared_claim())
    files.remove("a1b2")
    files.remove("a1b2")

    assert names(host) == []


def test_sweep_leaves_prepared_claims_and_other_programs_alone(host: Path) -> None:
    files = CdiFiles(host, METADATA)
    files.sweep(())  # there is no folder yet
    files.write(a_prepared_claim())
    kept = [NAME, "nvidia.yaml", ".nvidia.json.1"]
    for name in (*kept[1:], f".{NAME}.7.0", cdi_spec.file_name("c3d4"), "rdma.railnet.io-claim_"):
        (host / "run/cdi" / name).touch()

    files.sweep({"a1b2"})

    assert names(host) == sorted(kept)


def test_sweep_that_is_refused_is_logged(host: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    (host / "run/cdi").mkdir()
    (host / "run/cdi" / cdi_spec.file_name("c3d4")).mkdir()

    CdiFiles(host, METADATA).sweep(())

    assert "/var/run/cdi cannot be swept" in caplog.text
