"""Parse and check Railnet's own network configuration, which the runtime sends on stdin."""

from cni.host import json_object
from cni.host.environment import ADD, CHECK, GC, STATUS
from cni.host.errors import CONFIGURATION, INCOMPATIBLE_VERSION, CniError
from cni.host.result_version_conversion import CHECK_SINCE, STATUS_AND_GC_SINCE, number

TYPE_CHECKING = False  # typing's own constant, without typing: mypy takes it for true
if TYPE_CHECKING:
    from cni.host.json_object import JsonObject

# 0.3.0 differs from 0.3.1 in one name of a result of ADD, whose bytes Railnet passes on (cni, Documentation/spec-upgrades.md; libcni reads both
# into one type). Linkerd's script makes lists of this version.
SUPPORTED_VERSIONS = ("0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
_SINCE = {CHECK: CHECK_SINCE, GC: STATUS_AND_GC_SINCE, STATUS: STATUS_AND_GC_SINCE}
DEFAULT_RESOURCES = ["rdma/ib_vf"]
DEFAULT_CONFLIST = "/etc/cni/net.d/00-railnet.conflist"  # the folder is the default of containerd and CRI-O
# A constant of kubelet, whatever its --root-dir (k8s.io/kubelet, pkg/apis/deviceplugin/v1beta1/constants.go, DevicePluginPath).
DEFAULT_DEVICE_PLUGINS = "/var/lib/kubelet/device-plugins"
DEFAULT_KUBELET = "/var/lib/kubelet"  # as railnet.kubelet.root_folder, which is not for the host
MAX_SECONDS = 3600
ANNOTATIONS = "io.kubernetes.cri.pod-annotations"  # containerd, pkg/cri/annotations; CRI-O takes the same name
# The keys of GC's list: the specification 1.1.0's, and that of the first libcni with GC, which newer ones send as well.
_VALID_ATTACHMENTS, _ATTACHMENTS = "cni.dev/valid-attachments", "cni.dev/attachments"
DEFAULT_SECONDS = {"daemon": 5.0, "delegate": 30.0}


class NetConf:
    """One parsed configuration.

    `primary` is the path of the primary's configuration; `omit` are the types of its plugins that the runtime runs after
    Railnet (`cni.host.appended_plugins`), and `conflist` is the path of Railnet's own configuration, which names them.
    `device_plugins` is the folder of kubelet's checkpoint, `kubelet` its root folder. `resources` are the extended resources whose devices
    are rails.
    `seconds` has the two time limits that the slow lane needs. `runtime_config` is what the runtime passed for our
    capabilities. `annotations` are the pod's, if the runtime passes them (containerd and CRI-O do). For GC, `valid` has the
    keys of the valid attachments (`Environment.key`), and `attachments` the runtime's own list, to be passed on unchanged.
    """

    __slots__ = (
        "annotations",
        "attachments",
        "conflist",
        "device_plugins",
        "kubelet",
        "omit",
        "prev_result",
        "primary",
        "resources",
        "runtime_config",
        "seconds",
        "valid",
        "version",
    )

    def __init__(self, version: str, conf: "JsonObject") -> None:
        """Trust the arguments; `parse` has checked them."""
        self.version = version
        self.primary = conf["primary"]
        self.omit = conf.get("omit", [])
        self.conflist = conf.get("conflist", DEFAULT_CONFLIST)
        self.resources = conf.get("resources", DEFAULT_RESOURCES)
        self.device_plugins = conf.get("devicePlugins", DEFAULT_DEVICE_PLUGINS)
        self.kubelet = conf.get("kubelet", DEFAULT_KUBELET)
        self.seconds = {**DEFAULT_SECONDS, **conf.get("seconds", {})}
        self.runtime_config = conf.get("runtimeConfig") or {}
        self.annotations = self.runtime_config.get(ANNOTATIONS) or {}
        self.prev_result = conf.get("prevResult")
        self.attachments = {key: conf[key] for key in (_VALID_ATTACHMENTS, _ATTACHMENTS) if key in conf}
        self.valid = frozenset(
            f"{attachment['containerID']}@{attachment['ifname']}" for attachment in conf.get(_VALID_ATTACHMENTS) or []
        )


def supported_version(conf: "JsonObject") -> str:
    """Return the configuration's CNI version.

    Raises:
        CniError: code 1, Railnet does not know this version.
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
    """Parse and check the configuration of one request.

    Raises:
        CniError: code 6, no JSON object; 1, an unknown CNI version, or one without this command; 7, a key is missing or of the
            wrong kind.
    """
    conf = json_object.load_object(stdin, "the configuration on stdin")
    version = supported_version(conf)
    if number(version) < _SINCE.get(command, ()):
        raise CniError(INCOMPATIBLE_VERSION, f"cniVersion {version} has no {command}")
    _check(conf, "primary", isinstance(conf.get("primary"), str), "the path of the primary's CNI configuration")
    _check(conf, "resources", _strings(conf.get("resources", [])), "a list of extended resource names")
    _check(conf, "omit", _strings(conf.get("omit", [])), "a list of plugin types")
    _check(conf, "conflist", isinstance(conf.get("conflist", ""), str), "the path of Railnet's CNI configuration")
    _check(conf, "devicePlugins", isinstance(conf.get("devicePlugins", ""), str), "kubelet's folder of device plugins")
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
    """Check GC's list. null is Go's empty list. Without the key no attachment is known to be valid or not: GC is refused."""
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
