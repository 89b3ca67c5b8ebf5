"""The two images: their content and their start. Each has the packages of its own programs."""

import json
import re
import subprocess
import tomllib
from datetime import datetime
from hashlib import md5
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from packaging.requirements import Requirement

from railnet import VERSION
from tests.image.built import ROOT, Image, build, digest_of

MEBIBYTE = 1 << 20
EM_X86_64, EM_AARCH64 = 62, 183  # elf.h
PRIMARY = '{"cniVersion": "0.3.1", "name": "cbr0", "plugins": [{"type": "flannel"}]}'
UNPRIVILEGED = 65532
METADATA = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return Image("node", tmp_path_factory.mktemp("node"))


@pytest.fixture(scope="session")
def admission(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return Image("admission", tmp_path_factory.mktemp("admission"))


@pytest.fixture(params=["node", "admission"])
def image(request: pytest.FixtureRequest) -> Image:
    found: Image = request.getfixturevalue(request.param)
    return found


def test_archives_name_image_and_version(node: Image, admission: Image) -> None:
    assert (node.name, admission.name) == (f"railnet.io/railnet:{VERSION}", f"railnet.io/railnet-admission:{VERSION}")


def test_build_leaves_nothing_in_the_machines_folder_of_cni_configurations(image: Image) -> None:
    """An image that an earlier run has built is not built again, and leaves nothing in any case."""
    assert image.left_by_build == []


def test_container_runs_its_program_by_default(node: Image, admission: Image) -> None:
    assert node.config["Entrypoint"] + node.config["Cmd"] == ["railnet", "node"]
    assert admission.config["Entrypoint"] + admission.config["Cmd"] == ["railnet", "admission"]
    assert node.config["Env"] == admission.config["Env"] == ["PATH=/opt/railnet/bin:/usr/bin", "PYTHONOPTIMIZE=2"]


def test_node_runs_as_root_and_admission_as_an_unprivileged_user(node: Image, admission: Image) -> None:
    assert "User" not in node.config
    assert admission.config["User"] == f"{UNPRIVILEGED}:{UNPRIVILEGED}"


@pytest.mark.parametrize(("which", "packed", "unpacked"), [("node", 45, 110), ("admission", 70, 200)])
def test_image_is_small(request: pytest.FixtureRequest, which: str, packed: int, unpacked: int) -> None:
    image: Image = request.getfixturevalue(which)
    size, content = image.archive.stat().st_size, sum(entry.size for entry in image.entries())

    print(f"{image.name}: {size / MEBIBYTE:.1f} MiB, unpacked {content / MEBIBYTE:.1f} MiB")  # noqa: T201 - shown with -s
    assert size < packed * MEBIBYTE
    assert content < unpacked * MEBIBYTE


def test_labels_say_what_the_image_is(node: Image, admission: Image) -> None:
    project, prefix = METADATA["project"], "org.opencontainers.image."
    labels = {name.removeprefix(prefix): value for name, value in node.config["Labels"].items() if prefix in name}

    assert labels.pop("source", "https://").startswith("https://")
    assert re.fullmatch(r"[0-9a-f]{40}(-modified)?|unknown", labels.pop("revision"))
    assert labels.pop("created") == node.whole_config["created"]
    assert labels == {
        "title": "Railnet",
        "version": VERSION,
        "licenses": project["license"],
        "description": project["description"],
    }
    assert admission.config["Labels"][f"{prefix}title"] == "admission helper and controllers of Railnet"


def test_scanner_finds_the_release_of_debian(image: Image) -> None:
    release = (image.rootfs / "etc/os-release").read_text().splitlines()

    assert {"ID=debian", 'VERSION_ID="12"'} <= set(release)
    assert (image.rootfs / "etc/debian_version").read_text().startswith("12.")


def test_scanner_finds_every_package_of_debian(image: Image) -> None:
    packages = image.debian_packages()

    assert {"libc6", "libc-bin", "libstdc++6", "libudev1", "python3.11"} <= set(packages)
    assert [name for name, fields in packages.items() if fields["Package"] != name or not fields["Version"]] == []
    assert {fields["Architecture"] for fields in packages.values()} <= {"amd64", "all"}


def test_files_outside_of_the_environment_are_those_of_the_packages(image: Image) -> None:
    """A file is as its package names it. Configuration files have no sums; what the build makes is listed here."""
    sums = dict(
        reversed(line.split("  ", 1))
        for path in (image.rootfs / "var/lib/dpkg/status.d").glob("*.md5sums")
        for line in path.read_text().splitlines()
    )
    made = ("etc/", "opt/railnet/", "var/lib/dpkg/status.d/", "usr/lib/os-release")
    files = [entry.name for entry in image.entries() if entry.isfile() and not entry.name.startswith(made)]
    sources = [name for name in files if not name.endswith(".pyc")]

    assert len(sources) > 500
    assert [
        name
        for name in sources
        if sums.get(name) != md5((image.rootfs / name).read_bytes(), usedforsecurity=False).hexdigest()
    ] == []


def test_bill_of_materials_lists_what_is_in_the_image(image: Image) -> None:
    debian = {(name, fields["Version"]) for name, fields in image.debian_packages().items()}
    listed = [(package["name"], package["version"], package["purl"]) for package in image.bill["components"]]

    assert {(name, version) for name, version, purl in listed if purl.startswith("pkg:deb/debian/")} == debian
    assert {f"{name}-{version}" for name, version, purl in listed if purl.startswith("pkg:pypi/")} == image.packages()
    assert len(listed) == len(debian) + len(image.packages())


def test_bill_of_materials_names_the_image_and_source_packages(image: Image) -> None:
    component = image.bill["metadata"]["component"]
    (libc,) = (package["purl"] for package in image.bill["components"] if package["name"] == "libc6")

    assert (image.bill["bomFormat"], image.bill["specVersion"]) == ("CycloneDX", "1.6")
    assert f"{component['name']}:{component['version']}" == image.name
    assert f"sha256:{component['hashes'][0]['content']}" == image.digest
    assert libc.endswith("?arch=amd64&distro=debian-12&upstream=glibc")


def test_image_that_is_built_anew_has_the_same_digest(image: Image, tmp_path: Path) -> None:
    which = "node" if image.name.endswith(f"railnet:{VERSION}") else "admission"

    build(which, tmp_path / "again.tar", "--anew")

    assert digest_of(tmp_path / "again.tar") == image.digest


def test_every_time_in_the_image_is_the_one_of_its_label(image: Image) -> None:
    created = datetime.fromisoformat(image.config["Labels"]["org.opencontainers.image.created"])

    assert {step["created"] for step in image.whole_config["history"]} == {image.whole_config["created"]}
    assert {entry.mtime for entry in image.entries()} == {created.timestamp()}


def test_image_is_for_amd64(image: Image) -> None:
    assert (image.whole_config["os"], image.whole_config["architecture"]) == ("linux", "amd64")
    assert image.elf_machines() == {EM_X86_64}


def test_image_for_arm64_has_the_same_packages_for_arm64(node: Image, tmp_path: Path) -> None:
    arm64 = Image("node", tmp_path, "--arch", "arm64")
    debian = arm64.debian_packages()

    assert (arm64.whole_config["os"], arm64.whole_config["architecture"]) == ("linux", "arm64")
    assert arm64.elf_machines() == {EM_AARCH64}
    assert {fields["Architecture"] for fields in debian.values()} <= {"arm64", "all"}
    assert set(debian) == set(node.debian_packages())
    assert arm64.packages() == node.packages()
    assert b"/lib/aarch64-linux-gnu/libudev.so.1" in (arm64.rootfs / "etc/ld.so.cache").read_bytes()
    assert (arm64.config, arm64.name) == (node.config, node.name)


def test_every_file_belongs_to_root_and_only_root_can_write_it(image: Image) -> None:
    foreign = [
        entry.name
        for entry in image.entries()
        if not entry.issym() and (entry.mode & 0o6022 or entry.uid != 0 or entry.gid not in (0, 8, 42, 50))
    ]

    assert foreign == []


def test_image_has_no_shell_package_manager_or_cache(image: Image) -> None:
    names = ["bin/sh", "usr/bin/sh", "bin/bash", "usr/bin/apt-get", "usr/bin/pip", "opt/railnet/bin/pip"]
    unwanted = [*names, "root/.cache", "var/lib/apt", "var/cache/apt", "debs", "src", "wheels", "tmp", "pip"]

    assert [name for name in unwanted if (image.rootfs / name).exists()] == []


def test_image_does_not_name_the_package_registries_of_the_build_machine(image: Image) -> None:
    # pip's default registry is excluded: packages name it in their descriptions.
    hosts = {*pip_hosts("config", "list"), mirror_host()} - {*pip_hosts("install", "--help")}
    paths = [path for name in ("etc", "opt", "var") for path in (image.rootfs / name).rglob("*")]

    found = [
        str(path)
        for path in paths
        if path.is_file() and not path.is_symlink() and any(host.encode() in path.read_bytes() for host in hosts)
    ]
    assert found == []
    assert not (image.rootfs / "etc/apt").exists()
    assert list(image.rootfs.rglob("pip.conf")) == []


def pip_hosts(*arguments: str) -> list[str]:
    """Return the hosts of the URLs in pip's output."""
    printed = subprocess.run(["python", "-m", "pip", *arguments], capture_output=True, text=True, check=True)
    return re.findall(r"https?://(?:[^/\s@]*@)?([\w.-]+)", printed.stdout)


def mirror_host() -> str:
    mirror = subprocess.run(
        [ROOT / "scripts/unpack-debian-packages", "--mirror"], capture_output=True, text=True, check=True
    )
    return urlsplit(mirror.stdout.strip()).hostname or ""


def locked() -> set[str]:
    pins = re.findall(r"^\S+==\S+", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    return {pin.lower().replace("==", "-").replace("_", "-") for pin in pins}


def test_packages_are_in_the_lock_file(image: Image) -> None:
    assert image.packages() - locked() == {f"railnet-{VERSION}"}


def names(packages: set[str]) -> set[str]:
    return {package.rpartition("-")[0] for package in packages}


def test_each_image_lacks_the_packages_of_the_other(node: Image, admission: Image) -> None:
    assert {"aiohttp", "cryptography", "kubernetes"} <= names(admission.packages() - node.packages())
    assert {"grpcio", "protobuf", "pyroute2-minimal", "pyudev"} <= names(node.packages() - admission.packages())


def test_nothing_that_only_tests_use_is_in_the_image(image: Image) -> None:
    development = {Requirement(line).name.lower() for line in METADATA["project"]["optional-dependencies"]["dev"]}
    record = (image.site / f"railnet-{VERSION}.dist-info/RECORD").read_text().splitlines()
    folders = {line.partition("/")[0] for line in record if line.partition(",")[0].endswith(".py")}

    assert names(image.packages()) & {*development, "pip", "setuptools"} == set()
    assert folders == set(METADATA["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    assert [name for name in ("simnode", "tests") if (image.site / name).exists()] == []


def test_image_contains_the_modules_of_this_checkout(image: Image) -> None:
    for package in METADATA["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        for path in (ROOT / package).rglob("*.py"):
            assert (image.site / path.relative_to(ROOT)).read_bytes() == path.read_bytes()


def test_command_reports_its_version(image: Image) -> None:
    done = image.run("railnet", "version")

    assert (done.returncode, done.stdout, done.stderr) == (0, f"{VERSION}\n".encode(), b"")


@pytest.mark.parametrize(
    ("which", "modules", "least"),
    [
        ("node", "railnet.daemon.composition, railnet.install.installer, railnet.cluster_uninstall.program", 300),
        ("admission", "railnet.webhook.program, railnet.controllers_process.program", 600),
    ],
)
def test_every_imported_module_exists_and_is_compiled(
    request: pytest.FixtureRequest, which: str, modules: str, least: int
) -> None:
    image: Image = request.getfixturevalue(which)
    code = (
        f"import sys, os, {modules}\n"
        "specs = [getattr(module, '__spec__', None) for module in sys.modules.values()]\n"
        "files = [spec for spec in specs if getattr(spec, 'cached', None)]\n"
        "print(len(files), *(s.origin for s in files if s.origin.endswith('.py') and not os.path.exists(s.cached)))"
    )

    done = image.run("python", "-B", "-c", code)

    assert done.stderr == b""
    count, *uncompiled = done.stdout.split()
    assert uncompiled == []
    assert int(count) > least


def test_libraries_that_are_loaded_at_run_time_are_found(node: Image, admission: Image) -> None:
    on_node = node.run("python", "-c", "import pyudev, ssl, grpc; print(pyudev.Context().sys_path)")
    beside_webhook = admission.run("python", "-c", "import ssl, cryptography.x509; print(ssl.HAS_TLSv1_3)")

    assert (on_node.stdout, on_node.stderr) == (b"/sys\n", b"")
    assert (beside_webhook.stdout, beside_webhook.stderr) == (b"True\n", b"")


def test_installed_executable_works_on_an_empty_host(node: Image) -> None:
    host = node.rootfs / "host"
    (host / "opt/cni/bin").mkdir(parents=True)
    (host / "etc/cni/net.d").mkdir(parents=True)
    (host / "etc/cni/net.d/10-flannel.conflist").write_text(PRIMARY)
    (node.rootfs / "node.yaml").write_text("host: {root: /host}\n")

    installed = node.run("railnet", "install", "--config", "/node.yaml")
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


def test_admission_helper_explains_as_an_unprivileged_user(admission: Image) -> None:
    pod = ROOT / "tests/railnet/admission/golden/kubedl/elasticdljob-master.yaml"
    (admission.rootfs / "pod.json").write_text(json.dumps(yaml.safe_load(pod.read_text())["pod"]))
    (admission.rootfs / "node.yaml").write_text("{}\n")

    done = admission.run(
        "railnet", "admission", "explain", "-f", "/pod.json", "--config", "/node.yaml", user=UNPRIVILEGED
    )

    assert (done.returncode, done.stderr) == (0, b"")
    assert b"done:      added 1 rdma/ib_vf to container elasticdl" in done.stdout


def test_admission_helper_reports_a_missing_api_server_outside_a_cluster(admission: Image) -> None:
    (admission.rootfs / "node.yaml").write_text("{}\n")

    done = admission.run(
        "railnet", "admission", "--config", "/node.yaml", "--health-port", "0", "--port", "0", user=UNPRIVILEGED
    )

    assert done.returncode == 3
    assert b"there is no API server to ask" in done.stderr
