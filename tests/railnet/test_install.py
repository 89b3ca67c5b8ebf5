"""What stands on the host after an installation, on a host whose root is a folder of the test's."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from railnet import install as install_module
from railnet.configuration import Configuration, HostPaths
from railnet.conflist import FOLDER, NAME
from railnet.install import install
from vf.errors import Misconfigured

PRIMARY = f"{FOLDER}/10-flannel.conflist"


@pytest.fixture
def host(tmp_path: Path) -> Path:
    (tmp_path / FOLDER.lstrip("/")).mkdir(parents=True)
    (tmp_path / "opt/cni/bin").mkdir(parents=True)
    (tmp_path / PRIMARY.lstrip("/")).write_text('{"cniVersion": "1.0.0", "name": "cbr0", "type": "flannel"}')
    return tmp_path


def a_configuration(root: Path, **changes: object) -> Configuration:
    return replace(Configuration(host=replace(HostPaths(), root=root)), **changes)


def bundles(host: Path) -> list[Path]:
    return sorted((host / "opt/cni/bin/.railnet").iterdir())


def test_executable_names_its_own_version_so_that_an_upgrade_changes_nothing_under_it(host: Path) -> None:
    install(a_configuration(host))

    (bundle,) = bundles(host)
    executable = host / "opt/cni/bin/railnet"
    assert f'sys.path.insert(0, "/opt/cni/bin/.railnet/{bundle.name}")' in executable.read_text()
    assert executable.stat().st_mode & 0o777 == 0o755


def test_installed_modules_are_enough_to_answer(host: Path) -> None:
    install(a_configuration(host))
    (bundle,) = bundles(host)
    code = f"import sys; sys.path.insert(0, {str(bundle)!r}); from cni.host.plugin import main; main()"

    done = subprocess.run(
        ["/usr/bin/python3", "-ISE", "-c", code],
        env={"CNI_COMMAND": "VERSION"},
        input=b"",
        capture_output=True,
        check=True,
    )

    assert "1.0.0" in json.loads(done.stdout)["supportedVersions"]


def test_older_version_stays_for_who_runs_it(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(a_configuration(host))
    monkeypatch.setattr(install_module, "VERSION", "99.0.0")

    install(a_configuration(host))

    assert len(bundles(host)) == 2
    assert "/99.0.0-" in (host / "opt/cni/bin/railnet").read_text()


def test_installing_again_changes_nothing(host: Path) -> None:
    first = install(a_configuration(host))

    assert install(a_configuration(host)) == first
    assert len(bundles(host)) == 1


def test_bundle_of_a_crashed_installation_is_no_bundle(host: Path) -> None:
    install(a_configuration(host))
    (bundle,) = bundles(host)
    bundle.rename(bundle.with_name(f".{bundle.name}.{os.getpid()}"))

    install(a_configuration(host))

    assert bundles(host) == [bundle]


def test_configured_primary_may_be_an_absolute_link_on_the_host(host: Path) -> None:
    (host / "elsewhere").write_text('{"cniVersion": "0.4.0", "name": "other", "type": "bridge"}')
    (host / "link").symlink_to("/elsewhere")

    install(a_configuration(host, primary="/link"))

    assert json.loads((host / FOLDER.lstrip("/") / NAME).read_text())["name"] == "other"


def test_nothing_is_written_when_the_primary_is_broken(host: Path) -> None:
    (host / PRIMARY.lstrip("/")).write_text("{")

    with pytest.raises(Misconfigured):
        install(a_configuration(host, primary=PRIMARY))

    assert not (host / "opt/cni/bin/railnet").exists()
    assert not (host / FOLDER.lstrip("/") / NAME).exists()
