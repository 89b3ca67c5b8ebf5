"""The folder with further plugins of a network, beside its configuration: which folder it is, and which of its files count.

Source: containernetworking/cni 1.3.1, libcni/conf.go, NetworkConfFromFile and NetworkPluginConfsFromFiles.
"""

import posix

TYPE_CHECKING = False  # typing's own constant, without typing: mypy takes it for true
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cni.host.json_object import JsonObject

    PluginFiles = list[tuple[str, bytes]]
    ReadFolder = Callable[[str], PluginFiles]


def of(conf: "JsonObject", path: str) -> str | None:
    """Return the folder whose plugins follow those of the configuration at `path`; None if libcni reads none for it.

    A configuration of one plugin has no folder. A name that libcni refuses names none.
    """
    name = conf.get("name")
    single = "type" in conf and "plugins" not in conf
    if single or is_set(conf, "loadOnlyInlinedPlugins") or not isinstance(name, str) or not is_file_name(name):
        return None
    return f"{path.rpartition('/')[0]}/{name}"


def is_set(conf: "JsonObject", key: str) -> bool:
    """Return whether a switch of a list is on; newer libcni reads it from a string, too."""
    return conf.get(key) is True or str(conf.get(key)).lower() == "true"


def is_file_name(text: str) -> bool:
    """Return whether this is the name of a file, and no path."""
    return bool(text) and not text.startswith(".") and "/" not in text and "\0" not in text


def in_order(names: "Iterable[str]") -> list[str]:
    """Return the names of files that count, in libcni's order, which is that of their bytes."""
    return sorted(
        (name for name in names if name.endswith(".conf")), key=lambda name: name.encode(errors="surrogateescape")
    )


def read(folder: str) -> "PluginFiles":
    """Read the files of a folder on the host's disk; none if there is no such folder.

    Raises:
        OSError: the folder, or one of its files, cannot be read.
    """
    try:
        with posix.scandir(folder) as entries:
            names = [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [(path, _content(path)) for path in (f"{folder}/{name}" for name in in_order(names))]


def _content(path: str) -> bytes:
    with open(path, "rb") as file:  # pathlib takes longer to import than this module may
        return file.read()
