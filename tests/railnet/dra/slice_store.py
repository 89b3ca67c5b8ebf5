"""ResourceSlices as an API server keeps them, and the devices that the scheduler takes from them."""

import copy
from collections import Counter
from collections.abc import Iterable
from typing import Any

from railnet.apiserver.request import ApiObject, Request, Verb
from railnet.dra.devices import DraDevice
from railnet.dra.resource_slices import ExistingSlice, NodeIdentity, existing_slice, writes
from railnet.vf.pci_address import PciAddress

JsonObject = dict[str, Any]
NODE = NodeIdentity("gpu-7", "uid-of-gpu-7")


def a_device(number: int, reason: str | None = None, rail: int | None = None, **attributes: Any) -> DraDevice:
    """Return a device of a VF; without a rail, 127 VFs are on each."""
    vf = PciAddress(0, number // 256, number // 8 % 32, number % 8)
    return DraDevice(vf, number // 127 if rail is None else rail, tuple(sorted(attributes.items())), reason)


class SliceStore:
    """The slices by name. `keeps_taints` is false for an API server that does not know the field.

    Attributes:
        written: how many slices were created, updated and deleted.
    """

    def __init__(self, *, keeps_taints: bool = True) -> None:
        self.slices: dict[str, JsonObject] = {}
        self.written: Counter[str] = Counter()
        self.keeps_taints = keeps_taints
        self._version = 0

    def send(self, request: Request) -> JsonObject:
        about = request.about
        assert isinstance(about, ApiObject)
        known = self.slices.get(about.name)
        self.written[request.verb.right] += 1
        self._version += 1
        if request.verb is Verb.DELETE:
            assert known is not None
            preconditions: Any = request.body
            assert preconditions["preconditions"] == {key: known["metadata"][key] for key in ("uid", "resourceVersion")}
            return self.slices.pop(about.name)
        body: Any = copy.deepcopy(request.body)
        if request.verb is Verb.UPDATE:
            assert known is not None
            assert body["metadata"]["resourceVersion"] == known["metadata"]["resourceVersion"]
        else:
            assert known is None
            body["metadata"]["uid"] = f"uid-{self._version}"
        for device in body["spec"]["devices"]:
            if not self.keeps_taints:
                device.pop("taints", None)
            for taint in device.get("taints", ()):
                taint.setdefault("timeAdded", f"2026-01-01T00:00:{self._version % 60:02}Z")
        body["metadata"]["resourceVersion"] = str(self._version)
        self.slices[about.name] = body
        return copy.deepcopy(body)

    def existing(self) -> list[ExistingSlice]:
        return [existing_slice(copy.deepcopy(document), NODE.name) for document in self.slices.values()]

    def bring(self, devices: Iterable[DraDevice], most: int | None = None) -> int:
        """Send what `writes` returns, or the `most` first of it; return how many requests there were."""
        requests = writes(self.existing(), tuple(devices), NODE)
        for request in requests[:most]:
            self.send(request)
        return len(requests)

    def pool(self) -> tuple[JsonObject, ...] | None:
        """Return the devices of the pool as the scheduler sees them; None while the pool is not complete.

        Source: k8s.io/dynamic-resource-allocation, structured/internal (`GatherPools`).
        """
        highest = max((document["spec"]["pool"]["generation"] for document in self.slices.values()), default=0)
        newest = [
            self.slices[name]
            for name in sorted(self.slices, key=lambda name: int(name.rpartition("-")[2]))
            if self.slices[name]["spec"]["pool"]["generation"] == highest
        ]
        counts = {document["spec"]["pool"]["resourceSliceCount"] for document in newest}
        if counts != {len(newest)}:
            return None if newest else ()
        return tuple(device for document in newest for device in document["spec"]["devices"])
