"""The image of the DaemonSet as scripts/image built it, read and run as a container runtime would."""

import json
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from railnet import VERSION

ROOT = Path(__file__).resolve().parent.parent.parent
MEBIBYTE = 1 << 20
PRIMARY = '{"cniVersion": "0.3.1", "name": "cbr0", "plugins": [{"type": "flannel"}]}'


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("image") / "image.tar"
    subprocess.run([ROOT / "scripts/image", path], check=True)
    return path


@pytest.fixture(scope="session")
def layout(archive: Path) -> Path:
    folder = archive.parent / "layout"
    unpack(archive, folder)
    return folder


@pytest.fixture(scope="session")
def rootfs(layout: Path) -> Path:
    folder = layout.parent / "rootfs"
    for layer in layers(layout):
        unpack(layer, folder)
    return folder


def unpack(archive: Path, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    subprocess.run(["tar", "--extract", "--file", archive, "--directory", folder], check=True)


def read_blob(layout: Path, descriptor: dict[str, Any]) -> Any:
    return json.loads(blob(layout, descriptor).read_bytes())


def blob(layout: Path, descriptor: dict[str, Any]) -> Path:
    return layout / "blobs" / descriptor["digest"].replace(":", "/")


def manifest(layout: Path) -> dict[str, Any]:
    (descriptor,) = json.loads((layout / "index.json").read_text())["manifests"]
    return read_blob(layout, descriptor)


def layers(layout: Path) -> Iterator[Path]:
    return (blob(layout, layer) for layer in manifest(layout)["layers"])


def entries(layout: Path) -> Iterator[tarfile.TarInfo]:
    for layer in layers(layout):
        with tarfile.open(layer) as tar:
            yield from tar


def run(rootfs: Path, *command: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command in the image with the two file systems that every container has; nobody else sees them mounted."""
    for name in ("dev", "proc"):
        (rootfs / name).mkdir(exist_ok=True)
    enter = (
        'mount --rbind /dev "$0/dev" && mount --rbind /proc "$0/proc" && '
        'exec env --ignore-environment PATH=/opt/railnet/bin:/usr/bin "$(command -v chroot)" "$0" "$@"'
    )
    return subprocess.run(
        ["unshare", "--mount", "--propagation=private", "sh", "-c", enter, rootfs, *command],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        capture_output=True,
        check=False,
    )


def test_archive_names_the_image_by_its_version(layout: Path) -> None:
    (descriptor,) = json.loads((layout / "index.json").read_text())["manifests"]

    assert descriptor["annotations"]["org.opencontainers.image.ref.name"] == f"railnet.io/railnet:{VERSION}"


def test_container_runs_the_node_daemon_unless_it_is_told_otherwise(layout: Path) -> None:
    config = read_blob(layout, manifest(layout)["config"])["config"]

    assert config["Entrypoint"] + config["Cmd"] == ["railnet", "node"]
    assert config["Env"] == ["PATH=/opt/railnet/bin:/usr/bin"]
    assert "User" not in config


def test_image_is_small(archive: Path, layout: Path) -> None:
    assert archive.stat().st_size < 45 * MEBIBYTE
    assert sum(entry.size for entry in entries(layout)) < 110 * MEBIBYTE


def test_everything_is_roots_and_written_by_no_other(layout: Path) -> None:
    foreign = [
        entry.name
        for entry in entries(layout)
        if not entry.issym() and (entry.mode & 0o6022 or entry.uid != 0 or entry.gid not in (0, 8, 42, 50))
    ]

    assert foreign == []


def test_image_has_no_shell_no_package_manager_and_no_caches(rootfs: Path) -> None:
    names = ["bin/sh", "usr/bin/sh", "bin/bash", "usr/bin/apt-get", "usr/bin/pip", "opt/railnet/bin/pip"]
    unwanted = [*names, "root/.cache", "var/lib/apt", "var/cache/apt", "debs", "src", "wheels", "tmp", "pip"]

    assert [name for name in unwanted if (rootfs / name).exists()] == []


def test_image_names_no_registry_of_the_machine_it_was_built_on(rootfs: Path) -> None:
    hosts = [host.encode() for host in (*index_hosts(), mirror_host()) if host not in ("pypi.org", "deb.debian.org")]
    telling = [*(rootfs / "etc").rglob("*"), *(rootfs / "opt").rglob("*"), *(rootfs / "var").rglob("*")]

    found = [
        str(path)
        for path in telling
        if path.is_file() and not path.is_symlink() and any(host in path.read_bytes() for host in hosts)
    ]
    assert found == []
    assert not (rootfs / "etc/apt").exists()
    assert list(rootfs.rglob("pip.conf")) == []


def index_hosts() -> Iterator[str]:
    listing = subprocess.run(["python", "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    for word in listing.stdout.replace("'", " ").split():
        if host := urlsplit(word).hostname:
            yield host


def mirror_host() -> str:
    mirror = subprocess.run([ROOT / "scripts/debian-suite", "--mirror"], capture_output=True, text=True, check=True)
    return urlsplit(mirror.stdout.strip()).hostname or ""


def test_packages_are_those_of_the_lock_file_and_of_the_node_alone(rootfs: Path) -> None:
    found = {
        folder.name.removesuffix(".dist-info").lower().replace("_", "-")
        for folder in (rootfs / "opt/railnet/lib/python3.11/site-packages").glob("*.dist-info")
    }
    locked = {
        line.lower().replace("==", "-").replace("_", "-") for line in (ROOT / "requirements.lock").read_text().split()
    }

    assert found - locked == {f"railnet-{VERSION}"}
    assert [name for name in found if name.startswith(("kubernetes-", "pytest-", "mypy-"))] == []


def test_railnet_of_this_checkout_is_in_the_image(rootfs: Path) -> None:
    installed = rootfs / "opt/railnet/lib/python3.11/site-packages"

    for package in ("admission", "apiserver", "cni", "deviceplugin", "kernel", "kubelet", "railnet", "training", "vf"):
        for path in (ROOT / package).rglob("*.py"):
            assert (installed / path.relative_to(ROOT)).read_bytes() == path.read_bytes()


def test_command_answers(rootfs: Path) -> None:
    done = run(rootfs, "railnet", "version")

    assert (done.returncode, done.stdout, done.stderr) == (0, f"{VERSION}\n".encode(), b"")


def test_all_that_the_daemon_imports_is_there_and_compiled(rootfs: Path) -> None:
    code = (
        "import sys, os, railnet.node, railnet.install\n"
        "specs = [getattr(module, '__spec__', None) for module in sys.modules.values()]\n"
        "files = [spec for spec in specs if getattr(spec, 'cached', None)]\n"
        "print(len(files), *(s.origin for s in files if s.origin.endswith('.py') and not os.path.exists(s.cached)))"
    )

    done = run(rootfs, "python", "-B", "-c", code)

    assert done.stderr == b""
    count, *uncompiled = done.stdout.split()
    assert uncompiled == []
    assert int(count) > 300


def test_libraries_that_are_looked_for_at_run_time_are_found(rootfs: Path) -> None:
    done = run(rootfs, "python", "-c", "import pyudev, ssl, grpc; print(pyudev.Context().sys_path)")

    assert (done.stdout, done.stderr) == (b"/sys\n", b"")


def test_installed_executable_answers_on_a_host_that_has_nothing(rootfs: Path) -> None:
    host = rootfs / "host"
    (host / "opt/cni/bin").mkdir(parents=True)
    (host / "etc/cni/net.d").mkdir(parents=True)
    (host / "etc/cni/net.d/10-flannel.conflist").write_text(PRIMARY)
    (rootfs / "node.yaml").write_text("host: {root: /host}\n")

    installed = run(rootfs, "railnet", "install", "--config", "/node.yaml")
    answer = subprocess.run(
        ["/usr/sbin/chroot", host, "/opt/cni/bin/railnet"],
        env={"CNI_COMMAND": "VERSION"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )

    assert (installed.returncode, installed.stderr) == (0, b"")
    assert "1.0.0" in json.loads(answer.stdout)["supportedVersions"]
    assert (answer.returncode, answer.stderr) == (0, b"")
