"""A container image of one layer, as an OCI archive that `ctr images import` takes; what is in the layer is the caller's.

`python -m tests.cluster.oci NAME LAYER ARCHIVE` makes one without a command of its own.
Source: opencontainers/image-spec, image-layout.md, manifest.md, config.md.
"""

import hashlib
import io
import json
import os
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

_MEDIA = "application/vnd.oci.image"


class _Blob(NamedTuple):
    content: BinaryIO
    digest: str
    size: int


def write(
    archive: Path,
    name: str,
    layer: BinaryIO,
    command: Sequence[str] = (),
    path: str = "/usr/bin",
    entrypoint: Sequence[str] = (),
) -> None:
    """Write an image of this machine's architecture; `layer` is a tar archive, `path` where its programs are."""
    tree = _blob(layer)
    config = _json(
        architecture="amd64" if os.uname().machine == "x86_64" else "arm64",
        os="linux",
        config={"Entrypoint": list(entrypoint), "Cmd": list(command), "Env": [f"PATH={path}"]},
        rootfs={"type": "layers", "diff_ids": [tree.digest]},
    )
    manifest = _json(
        schemaVersion=2,
        config=_descriptor("config.v1+json", config),
        layers=[_descriptor("layer.v1.tar", tree)],
    )
    named = {**_descriptor("manifest.v1+json", manifest), "annotations": {"io.containerd.image.name": name}}
    with tarfile.open(archive, "w") as tar:
        _add(tar, "oci-layout", _json(imageLayoutVersion="1.0.0"))
        _add(tar, "index.json", _json(schemaVersion=2, manifests=[named]))
        for blob in (tree, config, manifest):
            _add(tar, f"blobs/sha256/{blob.digest.removeprefix('sha256:')}", blob)


def _add(tar: tarfile.TarFile, name: str, blob: _Blob) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = blob.size
    blob.content.seek(0)
    tar.addfile(entry, blob.content)


def _blob(content: BinaryIO) -> _Blob:
    content.seek(0)
    digest = hashlib.file_digest(content, "sha256").hexdigest()
    return _Blob(content, f"sha256:{digest}", content.seek(0, os.SEEK_END))


def _json(**members: Any) -> _Blob:
    return _blob(io.BytesIO(json.dumps(members).encode()))


def _descriptor(kind: str, blob: _Blob) -> dict[str, Any]:
    return {"mediaType": f"{_MEDIA}.{kind}", "digest": blob.digest, "size": blob.size}


if __name__ == "__main__":
    with Path(sys.argv[2]).open("rb") as opened:
        write(Path(sys.argv[3]), sys.argv[1], opened)
