"""What stands on the host after an installation, on a host whose root is a folder of the test's."""

import fcntl
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from railnet.configuration import Configuration, HostConfiguration
from railnet.install import installer as install_module
from railnet.install import python_bundle as bundle_module
from railnet.install.executable_location import ExecutableLocation
from railnet.install.installer import ExecutableDoesNotWork


@pytest.fixture
def host(tmp_path: Path) -> Path:
    (tmp_path / "opt/cni/bin").mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    return tmp_path


def works(root: Path, executable: str) -> None:
    """Stand in for a host that can run it: what a chroot needs, only the node tier has."""


def install(root: Path, try_out: Callable[[Path, str], None] = works) -> list[str]:
    return install_module.install(Configuration(host=replace(HostConfiguration(), root=root)), try_out)


def bundles(host: Path) -> list[Path]:
    return sorted((host / "opt/cni/bin/.railnet").iterdir())


def runs(host: Path, name: str = "railnet", **environ: str) -> Path:
    """Have a process on the host, as its /proc shows one that runs this script; gives its folder."""
    process = host / "proc/4711"
    process.mkdir()
    arguments = ("/usr/bin/python3", "-ISE", f"/opt/cni/bin/{name}")
    (process / "cmdline").write_text("".join(f"{argument}\0" for argument in arguments))
    (process / "environ").write_text("".join(f"{key}={value}\0" for key, value in environ.items()))
    (process / "status").write_text("Name:\tpython3\nPid:\t4711\nNSpid:\t4711\n")
    return process


def test_executable_names_its_own_version_so_that_an_upgrade_changes_nothing_under_it(host: Path) -> None:
    install(host)

    (bundle,) = bundles(host)
    executable = host / "opt/cni/bin/railnet"
    assert executable.read_text().startswith(f"#!/opt/cni/bin/.railnet/{bundle.name}/bin/python3")
    assert executable.stat().st_mode & 0o777 == 0o755


@pytest.fixture
def upgrade(host: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """A host where one version is installed; called, it installs the next."""
    install(host)
    monkeypatch.setattr(bundle_module, "VERSION", "99.0.0")
    monkeypatch.setattr(install_module, "_END_SECONDS", 0.3)
    return lambda: install(host)


@pytest.mark.slow
def test_older_version_is_removed_when_no_process_uses_it(host: Path, upgrade: Callable[[], list[str]]) -> None:
    said = upgrade()

    assert [path.name.split("-")[0] for path in bundles(host)] == ["99.0.0"]
    assert "/99.0.0-" in (host / "opt/cni/bin/railnet").read_text()
    assert "removed, nothing runs from it any more" in said[-1]


@pytest.mark.slow
def test_older_version_stays_while_a_request_uses_it(host: Path, upgrade: Callable[[], list[str]]) -> None:
    process = runs(host, PATH="/bin", CNI_COMMAND="ADD")

    said = upgrade()
    during = len(bundles(host))
    shutil.rmtree(process)
    install(host)

    assert (during, len(bundles(host))) == (2, 1)
    assert "1 requests still run" in said[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "environ"), [("railnet", {}), ("flannel", {"CNI_COMMAND": "ADD"})], ids=["no request", "another plugin"]
)
def test_older_version_does_not_wait_for_other_processes(
    host: Path, upgrade: Callable[[], list[str]], name: str, environ: dict[str, str]
) -> None:
    runs(host, name, **environ)

    upgrade()

    assert len(bundles(host)) == 1


@pytest.mark.slow
def test_process_in_a_pod_is_never_taken_for_a_request(host: Path, upgrade: Callable[[], list[str]]) -> None:
    process = runs(host, CNI_COMMAND="ADD")
    (process / "status").write_text("Name:\tpython3\nPid:\t4711\nNSpid:\t4711\t7\n")

    upgrade()

    assert len(bundles(host)) == 1


@pytest.mark.slow
def test_version_that_does_not_answer_does_not_replace_the_older_one(
    host: Path, upgrade: Callable[[], list[str]]
) -> None:
    before = (host / "opt/cni/bin/railnet").read_bytes()

    def fails(root: Path, executable: str) -> None:
        assert (root / executable.lstrip("/")).stat().st_mode & 0o777 == 0o755
        raise ExecutableDoesNotWork("no")

    with pytest.raises(ExecutableDoesNotWork):
        install(host, fails)

    assert (host / "opt/cni/bin/railnet").read_bytes() == before
    assert sorted(path.name for path in (host / "opt/cni/bin").iterdir()) == [".railnet", "railnet"]


def test_installation_that_waited_locks_the_new_folder(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = host / "opt/cni/bin/.railnet"
    flock = fcntl.flock

    def removed_meanwhile(fd: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        folder.rmdir()
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", removed_meanwhile)
    with install_module.locked(ExecutableLocation(host)):
        second = os.open(folder, os.O_RDONLY)
        try:
            with pytest.raises(BlockingIOError):
                fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(second)


def test_installing_again_changes_nothing(host: Path) -> None:
    first = install(host)

    assert install(host) == first
    assert len(bundles(host)) == 1


@pytest.mark.slow
def test_leftovers_of_crashed_installations_are_removed(host: Path) -> None:
    install(host)
    (bundle,) = bundles(host)
    bundle.rename(bundle.with_name(f".{bundle.name}.{os.getpid() + 1}"))
    (bundle.parent / "..candidate.x7").write_bytes(b"")

    install(host)

    assert bundles(host) == [bundle]


def test_installation_leaves_the_runtimes_configuration_to_the_daemon(host: Path) -> None:
    install(host)

    assert not (host / "etc").exists()


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("#!/nowhere/python\n", "cannot be run"),
        ("#!/bin/sh\necho rubbish\n", "rubbish"),
        ("#!/bin/sh\necho {}\n", "does not answer VERSION"),
        ("#!/bin/sh\necho no module >&2; exit 1\n", "no module"),
    ],
    ids=["no interpreter", "rubbish", "no versions", "fails"],
)
def test_error_has_the_output_of_an_executable_that_does_not_answer(tmp_path: Path, script: str, says: str) -> None:
    (tmp_path / "railnet").write_text(script)
    (tmp_path / "railnet").chmod(0o755)

    with pytest.raises(ExecutableDoesNotWork, match=says):
        install_module.answers(Path("/"), str(tmp_path / "railnet"))


def test_executable_that_answers_is_installed(tmp_path: Path) -> None:
    (tmp_path / "railnet").write_text(
        '#!/bin/sh\n[ $CNI_COMMAND = VERSION ] && echo \'{"supportedVersions": ["1.0.0"]}\'\n'
    )
    (tmp_path / "railnet").chmod(0o755)

    install_module.answers(Path("/"), str(tmp_path / "railnet"))
