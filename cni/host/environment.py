"""Parse and check the CNI_* environment of one request. Pure."""

from cni.host.errors import ENVIRONMENT, CniError

ADD, CHECK, DEL, GC, STATUS, VERSION = "ADD", "CHECK", "DEL", "GC", "STATUS", "VERSION"

_REQUIRED = {
    # CNI specification 1.1.0, section 2, "Protocol parameters" and the section of each command.
    ADD: ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"),
    CHECK: ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"),
    DEL: ("CNI_CONTAINERID", "CNI_IFNAME", "CNI_PATH"),
    GC: ("CNI_PATH",),
    STATUS: ("CNI_PATH",),
    VERSION: (),
}

_ALPHANUMERIC = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_ID_CHARACTERS = _ALPHANUMERIC | frozenset("_.-")
_MAX_ID = 128  # so that `<id>@<ifname>` is a file name (NAME_MAX is 255)
_MAX_IFNAME = 15  # IFNAMSIZ less the NUL, include/uapi/linux/if.h


class Environment:
    """The checked environment of one request. `path` is a list of folders; `args` is CNI_ARGS as a dict.

    GC, STATUS and VERSION concern no sandbox: their `container_id` and `ifname` are "".
    """

    __slots__ = ("args", "command", "container_id", "ifname", "netns", "path", "raw")

    def __init__(self, raw: dict[bytes, bytes]) -> None:
        """Check and split the variables.

        Raises:
            CniError: code 4, naming the variable and what is wrong with it.
        """
        self.raw = raw
        self.command = _text(raw, "CNI_COMMAND")
        if self.command not in _REQUIRED:
            raise CniError(ENVIRONMENT, f"CNI_COMMAND is {self.command!r}; Railnet knows {', '.join(_REQUIRED)}")
        missing = [name for name in _REQUIRED[self.command] if not raw.get(name.encode())]
        if missing:
            raise CniError(ENVIRONMENT, f"{self.command} needs {', '.join(missing)} in its environment")
        self.netns = _text(raw, "CNI_NETNS")
        self.path = [folder for folder in _text(raw, "CNI_PATH").split(":") if folder]
        self.args = dict(pair.split("=", 1) for pair in _text(raw, "CNI_ARGS").split(";") if "=" in pair)
        self.container_id = self.ifname = ""
        if "CNI_CONTAINERID" in _REQUIRED[self.command]:
            self.container_id, self.ifname = _text(raw, "CNI_CONTAINERID"), _text(raw, "CNI_IFNAME")
            _check_container_id(self.container_id)
            _check_ifname(self.ifname)

    @property
    def key(self) -> str:
        """The name of this attachment, which is also the file name of its lock and of its record."""
        return f"{self.container_id}@{self.ifname}"

    def pod_uid(self) -> str:
        """Return the pod's UID as the runtime passed it; "" if it did not."""
        return self.args.get("K8S_POD_UID", "")

    def pod_name(self) -> str:
        """Return the pod's name; "" for a sandbox that is no Kubernetes pod."""
        return self.args.get("K8S_POD_NAME", "")

    def pod_namespace(self) -> str:
        """Return the pod's namespace; "" for a sandbox that is no Kubernetes pod."""
        return self.args.get("K8S_POD_NAMESPACE", "")

    def for_delegate(self, command: str) -> dict[bytes, bytes]:
        """Return the environment of a delegate: the runtime's own, with only the command replaced."""
        return {**self.raw, b"CNI_COMMAND": command.encode()}


def _text(raw: dict[bytes, bytes], name: str) -> str:
    return raw.get(name.encode(), b"").decode("utf-8", "backslashreplace")


def is_container_id(text: str) -> bool:
    """Return whether this may be a container id; such an id is also a file name."""
    return text[:1] in _ALPHANUMERIC and len(text) <= _MAX_ID and _ID_CHARACTERS.issuperset(text)


def _check_container_id(container_id: str) -> None:
    if not is_container_id(container_id):
        rule = f"a letter or digit, then letters, digits, '_', '.' or '-', {_MAX_ID} characters at most"
        raise CniError(ENVIRONMENT, f"CNI_CONTAINERID {_short(container_id)} is not allowed: {rule}")


def _check_ifname(ifname: str) -> None:
    # The kernel's own rule, dev_valid_name() in net/core/dev.c.
    odd = ifname in (".", "..") or any(character in "/:" or character.isspace() for character in ifname)
    if odd or not ifname.isprintable() or len(ifname.encode()) > _MAX_IFNAME:
        rule = f"{_MAX_IFNAME} bytes at most, without '/', ':' and white space, and not '.' or '..'"
        raise CniError(ENVIRONMENT, f"CNI_IFNAME {_short(ifname)} is not allowed: {rule}")


def _short(text: str) -> str:
    return repr(text if len(text) <= _MAX_ID else text[:_MAX_ID] + "…")
