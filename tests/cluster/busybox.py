"""A container image made of Debian's static busybox, as an OCI archive: the one image of pods, and of their sandboxes.

Source: opencontainers/image-spec, image-layout.md, manifest.md, config.md.
"""

import hashlib
import io
import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

NAME = "docker.io/local/busybox:1"
_APPLETS = ("cat", "grep", "ip", "ls", "nc", "ping", "sh", "sleep")
_FOLDERS = ("bin", "dev", "etc", "proc", "sys", "tmp")
_MEDIA = "application/vnd.oci.image"


def write(archive: Path) -> None:
    """Write the image.

    Raises:
        FileNotFoundError: PATH has no busybox.
    """
    program = shutil.which("busybox")
    if program is None:
        raise FileNotFoundError("there is no busybox in PATH: start this by scripts/cluster")
    layer = _layer(Path(program))
    config = _json(
        architecture="amd64" if os.uname().machine == "x86_64" else "arm64",
        os="linux",
        config={"Cmd": ["/bin/sleep", "2147483647"], "Env": ["PATH=/bin"]},
        rootfs={"type": "layers", "diff_ids": [_digest(layer)]},
    )
    manifest = _json(
        schemaVersion=2,
        config=_descriptor("config.v1+json", config),
        layers=[_descriptor("layer.v1.tar", layer)],
    )
    named = {**_descriptor("manifest.v1+json", manifest), "annotations": {"io.containerd.image.name": NAME}}
    with tarfile.open(archive, "w") as tar:
        _add(tar, "oci-layout", _json(imageLayoutVersion="1.0.0"))
        _add(tar, "index.json", _json(schemaVersion=2, manifests=[named]))
        for blob in (layer, config, manifest):
            _add(tar, f"blobs/sha256/{_digest(blob).removeprefix('sha256:')}", blob)


def _layer(program: Path) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for folder in _FOLDERS:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        _add(tar, "bin/busybox", program.read_bytes(), 0o755)
        for applet in _APPLETS:
            entry = tarfile.TarInfo(f"bin/{applet}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(entry)
    return raw.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def _descriptor(kind: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": f"{_MEDIA}.{kind}", "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _json(**members: Any) -> bytes:
    return json.dumps(members).encode()
