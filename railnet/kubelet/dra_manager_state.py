"""Kubelet's record of prepared ResourceClaims, `dra_manager_state` in its root folder: the devices of each pod's claims.

Here: parsing the file's bytes. Not here: reading and caching the file (`railnet.kubelet.dra_manager_state_file`). This module also runs on
the host, in the plugin executable when there is no daemon, so it imports only `json` and `zlib`, and only when it parses.

Source: kubernetes/kubernetes, pkg/kubelet/cm/dra/state (`Checkpoint`, `CheckpointData`, `ClaimInfoState`) and manager.go: kubelet writes a
claim with the pod's UID before it calls the driver, and with the driver's devices before the pod's sandbox exists. The checksum is over
`Data` as it is written. Kubelet replaces the file by rename.
"""

NAME = "dra_manager_state"
_KIND, _VERSION = "DRACheckpoint", "checkpoint.dra.kubelet.k8s.io/v1"


class PreparedDevices:
    """The devices that a driver has prepared for a claim, and the UIDs of the pods of this node that use the claim.

    `devices` is empty while the driver has not answered, and for a claim that the driver was not asked to prepare.
    """

    __slots__ = ("claim_uid", "devices", "name", "namespace", "pod_uids")

    def __init__(
        self, claim_uid: str, namespace: str, name: str, pod_uids: frozenset[str], devices: tuple[str, ...]
    ) -> None:
        """Trust the arguments; `parse` has checked them."""
        self.claim_uid, self.namespace, self.name = claim_uid, namespace, name
        self.pod_uids, self.devices = pod_uids, devices

    def __str__(self) -> str:
        """Name the claim in a message."""
        return f"claim {self.namespace}/{self.name}"


def parse(raw: bytes, driver: str) -> tuple[PreparedDevices, ...]:
    """Return the claims that have devices of this driver, as the file lists them.

    Raises:
        ValueError: the file is not understood, or its checksum is another; the message says why.
    """
    data = _data(raw)
    claims = _list(data.get("ClaimInfoStateList"), "its ClaimInfoStateList")
    return tuple(_prepared(claim, driver) for claim in claims if driver in _drivers(claim))


def of_pod(claims: tuple[PreparedDevices, ...], pod_uid: str) -> tuple[PreparedDevices, ...]:
    """Return the claims that a pod uses."""
    return tuple(claim for claim in claims if pod_uid in claim.pod_uids)


def surely_names_none(raw: bytes, pod_uid: str, driver: str) -> bool:
    """Return whether a file of an unknown format has no device of this driver for a pod; False if that is not sure.

    Kubelet writes UIDs and names of drivers as plain text. So a whole JSON document without the pod's UID, or without the driver's name,
    gives the pod none. A document that is no JSON may be cut short.
    """
    try:
        _json(raw)
    except ValueError:
        return False
    return (bool(pod_uid) and pod_uid.encode() not in raw) or driver.encode() not in raw


def _data(raw: bytes) -> dict[str, object]:
    import zlib  # here, as json: most requests on the host parse no such file

    document = _mapping(_json(raw), "it")
    text, checksum = document.get("Data"), document.get("Checksum")
    if not isinstance(text, str):
        raise _not_understood(f"its Data is {_kind(text)}, not a text")
    content = text.encode(errors="surrogatepass")
    if type(checksum) is not int or checksum != zlib.crc32(content):
        raise _not_understood("its checksum is not that of its Data")
    data = _mapping(_json(content), "its Data")
    version = data.get("kind"), data.get("apiVersion")
    if version != (_KIND, _VERSION):
        raise _not_understood(f"its Data is a {version[0]!r:.40} of {version[1]!r:.80}, not a {_KIND} of {_VERSION}")
    return data


def _json(raw: bytes) -> object:
    import json

    try:
        return json.loads(raw.decode())  # from bytes, json detects the encoding, for which the host bundle lacks codecs
    except RecursionError:
        raise _not_understood("it is nested too deeply") from None
    except ValueError as error:  # also UnicodeDecodeError, and an integer of thousands of digits
        raise _not_understood(f"it is not JSON ({error})") from error


def _drivers(claim: object) -> dict[str, object]:
    """Return what a claim's drivers have prepared, by driver."""
    return _mapping(
        _mapping(claim, "an entry of its ClaimInfoStateList").get("DriverState") or {}, "a claim's DriverState"
    )


def _prepared(claim: dict[str, object], driver: str) -> PreparedDevices:
    state = _mapping(_drivers(claim)[driver], "a driver's state")
    devices = [_mapping(device, "a device") for device in _list(state.get("Devices"), "a driver's Devices")]
    return PreparedDevices(
        _name(claim, "ClaimUID"),
        _name(claim, "Namespace"),
        _name(claim, "ClaimName"),
        frozenset(_mapping(claim.get("PodUIDs") or {}, "a claim's PodUIDs")),
        tuple(sorted({_name(device, "DeviceName") for device in devices})),
    )


def _list(value: object, name: str) -> list[dict[str, object]]:
    if value is None:  # Go writes an empty slice as null
        return []
    if not isinstance(value, list):
        raise _not_understood(f"{name} is {_kind(value)}, not a list")
    return value


def _mapping(value: object, name: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _not_understood(f"{name} is {_kind(value)}, not an object")
    return value


def _name(entry: dict[str, object], key: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value:
        raise _not_understood(f"a {key} is {_kind(value)}, not a name")
    return value


def _kind(value: object) -> str:
    if value is None:
        return "missing"
    return "empty" if value == "" else f"of type {type(value).__name__}"


def _not_understood(why: str) -> ValueError:
    return ValueError(f"kubelet's {NAME} is not understood: {why}")
