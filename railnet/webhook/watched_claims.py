"""How many VFs pods ask for by ResourceClaims, kept up to date by a watch of the claims and templates that users write.

A claim that Kubernetes made for a pod is not kept: the pod names its template, or asks for the resource itself.
"""

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

from railnet.apiserver.client import StreamingApiServer
from railnet.apiserver.request import Collection as ApiCollection
from railnet.controllers.informer_where_served import InformerWhereServed
from railnet.errors import NotReady
from railnet.gangs.device_claims import amounts, device_claim
from railnet.gangs.slice_devices import BY_CLAIM
from railnet.objects.owner_reference import controller
from railnet.objects.pod import Pod

_DRA = "resource.k8s.io/v1"
_CLAIMS, _TEMPLATES = "resourceclaims", "resourceclaimtemplates"
_Counts = InformerWhereServed[int]


class WatchedClaims:
    """The claims and templates that ask for VFs."""

    def __init__(self, api: StreamingApiServer, resources: Collection[str]) -> None:
        """Watch by an API server; `resources` are those of the pools, each with a DeviceClass of its own."""
        self._resources = resources
        self.informers: Mapping[str, _Counts] = {
            _CLAIMS: InformerWhereServed(api, ApiCollection(_DRA, _CLAIMS), self._of_claim, _nothing),
            _TEMPLATES: InformerWhereServed(api, ApiCollection(_DRA, _TEMPLATES), self._of_template, _nothing),
        }

    def start(self) -> None:
        """Watch from now on, in threads that end with the process."""
        for name, informer in self.informers.items():
            run: Callable[[threading.Event], None] = informer.run
            threading.Thread(target=run, args=(threading.Event(),), name=f"watch of {name}", daemon=True).start()

    def vfs(self, pod: Pod) -> int:
        """Return how many VFs a pod asks for by claims. A claim or template that does not exist yet asks for none.

        Raises:
            NotReady: the claims and templates are not known yet.
        """
        vfs = 0
        for named in pod.claims:
            resource, name = (_CLAIMS, named.claim) if named.claim else (_TEMPLATES, named.template)
            informer = self.informers[resource]
            if not informer.listed.is_set():
                raise NotReady(
                    f"Railnet does not know yet what the pod's claims ask for: {informer.trouble}; try again"
                )
            vfs += informer.get(pod.namespace, name) or 0
        return vfs

    def _of_claim(self, document: dict[str, Any]) -> int | None:
        return None if controller(document) is not None else self._asked(document)

    def _of_template(self, document: dict[str, Any]) -> int | None:
        return self._asked({"metadata": document["metadata"], "spec": document["spec"]["spec"]})

    def _asked(self, claim: dict[str, Any]) -> int | None:
        return amounts(device_claim(claim), self._resources).get(BY_CLAIM)


def _nothing(before: int | None, after: int | None) -> None:
    """Take in a change: each review looks for itself."""
