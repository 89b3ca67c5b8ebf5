"""Railnet's own network configuration, as the runtime sends it on stdin. Parsed once, checked once."""

from cni.host.environment import ADD, CHECK, GC, STATUS
from cni.host.errors import CONFIGURATION, DECODE, INCOMPATIBLE_VERSION, CniError
from cni.host.versions import CHECK_SINCE, STATUS_AND_GC_SINCE, number

TYPE_CHECKING = False  # typing's own constant, without typing: mypy takes it for true
if TYPE_CHECKING:
    from typing import Any

    JsonObject = dict[str, Any]

SUPPORTED_VERSIONS = ("0.3.1", "0.4.0", "1.0.0", "1.1.0")
_SINCE = {CHECK: CHECK_SINCE, GC: STATUS_AND_GC_SINCE, STATUS: STATUS_AND_GC_SINCE}
DEFAULT_RESOURCES = ["rdma/ib_vf"]
DEFAULT_KUBELET = "/var/lib/kubelet"
MAX_SECONDS = 3600
ANNOTATIONS = "io.kubernetes.cri.pod-annotations"  # containerd, pkg/cri/annotations; CRI-O takes the same name
# What GC's list is called: by the specification 1.1.0, and by the first libcni that had it, which newer ones send as well.
_VALID_ATTACHMENTS, _ATTACHMENTS = "cni.dev/valid-attachments", "cni.dev/attachments"
DEFAULT_SECONDS = {"daemon": 5.0, "delegate": 30.0}


class NetConf:
    """One parsed configuration.

    `primary` is the path of the primary's configuration, `resources` the extended resources whose devices are rails,
    `seconds` the two limits the slow lane needs, `runtime_config` what the runtime passed for our capabilities,
    `annotations` the pod's, where the runtime passes them (containerd and CRI-O do). Of GC, `valid` names the attachments
    that live, as `Environment.key` does, and `attachments` is what says so, to be passed on as it is.
    """

    __slots__ = (
        "annotations",
        "attachments",
        "kubelet",
        "prev_result",
        "primary",
        "resources",
        "runtime_config",
        "seconds",
        "valid",
        "version",
    )

    def __init__(self, version: str, conf: "JsonObject") -> None:
        """Take what `parse` has checked."""
        self.version = version
        self.primary = conf["primary"]
        self.resources = conf.get("resources", DEFAULT_RESOURCES)
        self.kubelet = conf.get("kubelet", DEFAULT_KUBELET)
        self.seconds = {**DEFAULT_SECONDS, **conf.get("seconds", {})}
        self.runtime_config = conf.get("runtimeConfig") or {}
        self.annotations = self.runtime_config.get(ANNOTATIONS) or {}
        self.prev_result = conf.get("prevResult")
        self.attachments = {key: conf[key] for key in (_VALID_ATTACHMENTS, _ATTACHMENTS) if key in conf}
        self.valid = frozenset(f"{one['containerID']}@{one['ifname']}" for one in conf.get(_VALID_ATTACHMENTS) or [])


def load_object(raw: bytes, what: str, code: int = DECODE) -> "JsonObject":
    """Read a JSON object.

    Raises:
        CniError: `code`, `what` is not JSON, is nested too deeply, or is another value.
    """
    from cni.host import json_text  # the executable's fast lane never gets here

    try:
        value = json_text.loads(raw.decode())
    except RecursionError:
        raise CniError(code, f"{what} is nested too deeply to be read") from None
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise CniError(code, f"{what} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise CniError(code, f"{what} is a JSON {type(value).__name__}, not an object")
    return value


def supported_version(conf: "JsonObject") -> str:
    """Give the configuration's CNI version.

    Raises:
        CniError: code 1, Railnet does not speak it.
    """
    version: str = conf.get("cniVersion", "0.1.0")  # the specification's value for a missing key
    if version not in SUPPORTED_VERSIONS:
        raise CniError(
            INCOMPATIBLE_VERSION,
            f"cniVersion {version!r} is not supported",
            f"Railnet speaks {', '.join(SUPPORTED_VERSIONS)}",
        )
    return version


def parse(stdin: bytes, command: str = ADD) -> NetConf:
    """Read and check the configuration of one request.

    Raises:
        CniError: code 6, no JSON object; 1, another CNI version, or one without this command; 7, a key is missing or of the wrong kind.
    """
    conf = load_object(stdin, "the configuration on stdin")
    version = supported_version(conf)
    if number(version) < _SINCE.get(command, ()):
        raise CniError(INCOMPATIBLE_VERSION, f"cniVersion {version} has no {command}")
    _check(conf, "primary", isinstance(conf.get("primary"), str), "the path of the primary's CNI configuration")
    _check(conf, "resources", _strings(conf.get("resources", [])), "a list of extended resource names")
    _check(conf, "kubelet", isinstance(conf.get("kubelet", ""), str), "kubelet's root folder")
    _check(conf, "seconds", _numbers(conf.get("seconds", {})), 'an object like {"daemon": 5, "delegate": 30}')
    _check(conf, "runtimeConfig", isinstance(conf.get("runtimeConfig") or {}, dict), "an object")
    annotations = (conf.get("runtimeConfig") or {}).get(ANNOTATIONS)
    _check(
        conf, "runtimeConfig", _texts_by_text(annotations or {}), f"an object whose {ANNOTATIONS!r} maps texts to texts"
    )
    _check(conf, "prevResult", conf.get("prevResult") is None or isinstance(conf["prevResult"], dict), "an object")
    if command == GC or _VALID_ATTACHMENTS in conf:
        _check_attachments(conf)
    return NetConf(version, conf)


def _check(conf: "JsonObject", key: str, right: bool, should_be: str) -> None:
    if not right:
        raise CniError(CONFIGURATION, f"{key!r} is {conf.get(key)!r:.200}; it should be {should_be}")


def _check_attachments(conf: "JsonObject") -> None:
    """Check GC's list. null is Go's empty list; a missing one says nothing of what lives, so nothing may be collected."""
    if _VALID_ATTACHMENTS not in conf:
        raise CniError(CONFIGURATION, f"GC needs {_VALID_ATTACHMENTS!r}, the list of what is still valid")
    listed = conf[_VALID_ATTACHMENTS]
    right = listed is None or (isinstance(listed, list) and all(map(_is_attachment, listed)))
    _check(conf, _VALID_ATTACHMENTS, right, 'a list of objects like {"containerID": "…", "ifname": "eth0"}')


def _is_attachment(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(key), str) for key in ("containerID", "ifname"))


def _strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(entry, str) for entry in value)


def _texts_by_text(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(entry, str) for entry in value.values())


def _numbers(value: object) -> bool:
    return isinstance(value, dict) and all(
        key in DEFAULT_SECONDS and type(entry) in (int, float) and 0 < entry <= MAX_SECONDS
        for key, entry in value.items()
    )
