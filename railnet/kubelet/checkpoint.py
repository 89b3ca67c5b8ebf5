"""Kubelet's device checkpoint: the devices of each pod. Kubelet writes it before the pod's sandbox exists.

Here: parsing the file's bytes. Not here: reading and caching the file (`railnet.kubelet.checkpoint_file`), and the meaning of a device. This module
also runs on the host, in the plugin executable when there is no daemon, so it imports only `json`, and only when it parses.

Source: kubernetes/kubernetes, pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go (`Data`, `PodDevicesEntry`). The checksum is a hash
of Go's rendering of the values, and is not checked here. Kubelet replaces the file by rename (pkg/kubelet/util/store/filestore.go), so a
reader never sees half a file.
"""

Entries = dict[str, dict[str, set[str]]]  # pod UID → resource → device ids, united over the pod's containers
Listed = list[tuple[str, str, set[str], dict[str, object]]]  # pod UID, resource and device ids, and the entry itself


def parse(raw: bytes) -> Entries:
    """Read the checkpoint; a pod without devices is not in the result.

    Raises:
        ValueError: the checkpoint is not understood; the message says why.
    """
    return united(listed(raw))


def listed(raw: bytes) -> Listed:
    """Return the checkpoint's entries as they stand there: one for each container and resource.

    Raises:
        ValueError: as for `parse`.
    """
    data = _mapping(_mapping(_document(raw), "it").get("Data"), "its Data")
    entries = []
    for entry in _pod_device_entries(data):
        _mapping(entry, "an entry of its PodDeviceEntries")
        entries.append(
            (_name(entry, "PodUID"), _name(entry, "ResourceName"), _device_ids(entry.get("DeviceIDs")), entry)
        )
    return entries


def united(listing: Listed) -> Entries:
    """Return the devices of each pod that has some, united over its containers."""
    entries: Entries = {}
    for pod_uid, resource, ids, _ in listing:
        if ids:
            entries.setdefault(pod_uid, {}).setdefault(resource, set()).update(ids)
    return entries


def responses(entries: Listed, pod_uid: str) -> list[tuple[set[str], str, str]]:
    """Return one pod's device ids, resource and AllocResp ("" if the entry has none), container by container."""
    allocations = []
    for uid, resource, ids, entry in entries:
        response = entry.get("AllocResp") or ""
        if uid == pod_uid and isinstance(response, str):
            allocations.append((ids, resource, response))
    return allocations


def surely_names_none(raw: bytes, pod_uid: str, resources: frozenset[str] | set[str] | tuple[str, ...]) -> bool:
    """Return whether a checkpoint of an unknown format has no device of these resources for a pod; False if that is not sure.

    Kubelet writes pods and resources as plain text. So a whole JSON document without the pod's UID, or without the resources'
    names, gives the pod none of them. A document that is no JSON may be cut short.
    """
    try:
        _document(raw)
    except ValueError:
        return False
    names = [resource.rpartition("/")[2].encode() for resource in resources]  # JSON may escape a slash
    return (bool(pod_uid) and pod_uid.encode() not in raw) or not any(name in raw for name in names)


def devices(
    entries: Entries, pod_uid: str, resources: frozenset[str] | set[str] | tuple[str, ...]
) -> list[tuple[str, str]]:
    """Return one pod's devices of the given resources, as sorted pairs of resource and device id."""
    pod = entries.get(pod_uid, {})
    return sorted((resource, device) for resource, ids in pod.items() if resource in resources for device in ids)


def holders(entries: Entries, resource: str, device: str) -> set[str]:
    """Return the UIDs of the pods that have a device; kubelet removes a finished pod's entry before it allocates the id again."""
    return {pod_uid for pod_uid, pod in entries.items() if device in pod.get(resource, ())}


def _document(raw: bytes) -> object:
    import json  # here, since most requests on the host parse no checkpoint

    try:
        return json.loads(
            raw.decode()
        )  # from bytes, json detects the encoding, for which the host bundle lacks the codecs
    except RecursionError:
        raise _not_understood("it is nested too deeply") from None
    except ValueError as error:  # also UnicodeDecodeError, and an integer of thousands of digits
        raise _not_understood(f"it is not JSON ({error})") from error


def _pod_device_entries(data: dict[str, object]) -> list[dict[str, object]]:
    if "PodDeviceEntries" not in data:
        raise _not_understood("its Data has no PodDeviceEntries")
    entries = data["PodDeviceEntries"]
    if entries is None:  # Go writes an empty slice as null
        return []
    if not isinstance(entries, list):
        raise _not_understood(f"its PodDeviceEntries is {_kind(entries)}, not a list")
    return entries


def _mapping(value: object, name: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _not_understood(f"{name} is {_kind(value)}, not an object")
    return value


def _name(entry: dict[str, object], key: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value:
        raise _not_understood(f"an entry's {key} is {_kind(value)}, not a name")
    return value


def _device_ids(value: object) -> set[str]:
    """Return the ids: the checkpoint has a map by NUMA node since Kubernetes 1.20 (-1: no node), and a list before."""
    lists = list(value.values()) if isinstance(value, dict) else [value]
    ids: set[str] = set()
    for listed in lists:
        if listed is None:  # Go writes an empty slice as null
            continue
        if not isinstance(listed, list) or not all(isinstance(device, str) and device for device in listed):
            raise _not_understood("an entry's DeviceIDs is neither a list of ids nor a map of such lists by NUMA node")
        ids.update(listed)
    return ids


def _kind(value: object) -> str:
    if value is None:
        return "missing"
    return "empty" if value == "" else f"of type {type(value).__name__}"


def _not_understood(why: str) -> ValueError:
    return ValueError(f"kubelet's device checkpoint is not understood: {why}")
