"""An image that scripts/image built: its layers, its configuration, and a way to run a command in it."""

import json
import subprocess
import tarfile
from collections.abc import Iterator
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_CNI = Path("/etc/cni")


def build(target: str, archive: Path, *options: str) -> None:
    """Write the archive of an image, and its list of packages beside it."""
    subprocess.run([ROOT / "scripts/image", *options, target, archive], check=True)


def digest_of(archive: Path) -> str:
    """Return the digest of the image in an OCI archive."""
    done = subprocess.run(
        ["tar", "--extract", "--to-stdout", "--file", archive, "index.json"], capture_output=True, check=True
    )
    (descriptor,) = json.loads(done.stdout)["manifests"]
    return str(descriptor["digest"])


class Image:
    """An OCI archive, unpacked below a folder.

    Attributes:
        archive: the archive's file.
        bill: the list of packages beside it, a CycloneDX bill of materials.
        left_by_build: what scripts/image left in the machine's folder of CNI configurations.
        rootfs: the root folder of a container.
    """

    def __init__(self, target: str, folder: Path, *options: str) -> None:
        self.archive, self.rootfs = folder / "image.tar", folder / "rootfs"
        self._layout = folder / "layout"
        before = set(_CNI.rglob("*"))
        build(target, self.archive, *options)
        self.bill: dict[str, Any] = json.loads((folder / "image.tar.cdx.json").read_text())
        self.left_by_build = sorted(set(_CNI.rglob("*")) - before)
        _unpack(self.archive, self._layout)
        for layer in self._layers():
            _unpack(layer, self.rootfs)

    @property
    def name(self) -> str:
        return str(self._descriptor["annotations"]["org.opencontainers.image.ref.name"])

    @property
    def digest(self) -> str:
        return str(self._descriptor["digest"])

    @property
    def whole_config(self) -> dict[str, Any]:
        config: dict[str, Any] = json.loads(self._blob(self._manifest["config"]).read_bytes())
        return config

    @property
    def config(self) -> dict[str, Any]:
        run_as: dict[str, Any] = self.whole_config["config"]
        return run_as

    def entries(self) -> Iterator[tarfile.TarInfo]:
        for layer in self._layers():
            with tarfile.open(layer) as tar:
                yield from tar

    def packages(self) -> set[str]:
        """Return the packages that pip has installed, as `name-version`."""
        return {
            folder.name.removesuffix(".dist-info").lower().replace("_", "-") for folder in self.site.glob("*.dist-info")
        }

    def debian_packages(self) -> dict[str, Message]:
        """Return what the image says of each package of Debian: its control fields, by the name of the package."""
        files = (self.rootfs / "var/lib/dpkg/status.d").iterdir()
        return {file.name: HeaderParser().parsestr(file.read_text()) for file in files if file.suffix != ".md5sums"}

    def elf_machines(self) -> set[int]:
        """Return the machines that programs and libraries are for (`e_machine`, elf(5))."""
        files = (path for path in self.rootfs.rglob("*") if path.is_file() and not path.is_symlink())
        heads = (file.read_bytes()[:20] for file in files)
        return {int.from_bytes(head[18:20], "little") for head in heads if head.startswith(b"\x7fELF")}

    @property
    def site(self) -> Path:
        return self.rootfs / "opt/railnet/lib/python3.11/site-packages"

    def run(self, *command: str, user: int = 0) -> subprocess.CompletedProcess[bytes]:
        """Run a command in the image with /dev and /proc, which are mounted in a private mount namespace."""
        for name in ("dev", "proc"):
            (self.rootfs / name).mkdir(exist_ok=True)
        enter = (
            'mount --rbind /dev "$0/dev" && mount --rbind /proc "$0/proc" && '
            f'exec env --ignore-environment {" ".join(self.config["Env"])} "$(command -v chroot)" --userspec={user}:{user} "$0" "$@"'
        )
        return subprocess.run(
            ["unshare", "--mount", "--propagation=private", "sh", "-c", enter, self.rootfs, *command],
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
            capture_output=True,
            check=False,
        )

    @property
    def _descriptor(self) -> dict[str, Any]:
        (found,) = json.loads((self._layout / "index.json").read_text())["manifests"]
        descriptor: dict[str, Any] = found
        return descriptor

    @property
    def _manifest(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._blob(self._descriptor).read_bytes())
        return found

    def _layers(self) -> Iterator[Path]:
        return (self._blob(layer) for layer in self._manifest["layers"])

    def _blob(self, descriptor: dict[str, Any]) -> Path:
        return self._layout / "blobs" / descriptor["digest"].replace(":", "/")


def _unpack(archive: Path, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    subprocess.run(["tar", "--extract", "--file", archive, "--directory", folder], check=True)
