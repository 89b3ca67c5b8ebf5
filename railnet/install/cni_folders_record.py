"""Which CNI folders of a host may have files of Railnet: the configured ones can change, and no runtime should find stale files.

The record is a file on the host. The default folders are not in it: they are always looked at, since versions before 0.6 used no others.
"""

import json
from pathlib import Path
from typing import NamedTuple

from railnet.configuration import HostConfiguration
from railnet.kernel.files import below, read_below, write_atomically

FILE = "/var/lib/railnet/cni_folders.json"


class CniFolders(NamedTuple):
    """Two folders of a host: the runtime looks in `conf` for CNI configurations, and in `bin` for plugins."""

    conf: str
    bin: str

    @classmethod
    def of(cls, host: HostConfiguration) -> "CniFolders":
        """Return the configured ones."""
        return cls(str(host.cni_conf), str(host.cni_bin))


_DEFAULT = CniFolders.of(HostConfiguration())


def add(folders: CniFolders, root: Path) -> None:
    """Record folders of the host at `root`, before anything is written into them.

    Raises:
        OSError: the record cannot be written.
    """
    known = recorded(root)
    if folders in known:
        return
    path = below(root, FILE)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    listed = [other._asdict() for other in (*known, folders) if other != _DEFAULT]
    write_atomically(path, json.dumps(listed, indent=2).encode() + b"\n", durable=True)


def recorded(root: Path) -> tuple[CniFolders, ...]:
    """Return the default folders, and those of the record; a record that cannot be read names none."""
    try:
        return (_DEFAULT, *parse(read_below(root, FILE)))
    except (OSError, ValueError):
        return (_DEFAULT,)


def parse(content: bytes) -> tuple[CniFolders, ...]:
    """Read the record.

    Raises:
        ValueError: it is none.
    """
    try:
        return tuple(CniFolders(_path(entry["conf"]), _path(entry["bin"])) for entry in json.loads(content))
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{FILE} is no list of CNI folders: {error!r:.80}") from None


def _path(value: object) -> str:
    if not isinstance(value, str) or not value.startswith("/") or "\0" in value:
        raise ValueError(f"{FILE} has {value!r:.80}, which is no absolute path")
    return value
