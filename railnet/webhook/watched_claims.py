"""How many VFs pods ask for by ResourceClaims, kept up to date by a watch of the claims and templates that users and their programs write.

A claim that Kubernetes made for a pod is not kept: the pod names its template, or asks for the resource itself.
"""

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

from railnet.apiserver.client import StreamingApiServer
from railnet.apiserver.request import Collection as ApiCollection
from railnet.controllers.informer_where_served import InformerWhereServed
from railnet.errors import NotReady
from railnet.objects.owner_reference import controller
from railnet.objects.pod import Pod
from railnet.webhook import asked_vfs

_DRA = "resource.k8s.io/v1"
_CLAIMS, _TEMPLATES = "resourceclaims", "resourceclaimtemplates"
_KINDS = {_CLAIMS: "ResourceClaim", _TEMPLATES: "ResourceClaimTemplate"}
_Counts = InformerWhereServed[int]


class WatchedClaims:
    """The claims and templates, also those that ask for no VF: a name that is not among them is not known."""

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

    def reasons(self) -> list[str]:
        """Return why the claims or templates are not known yet; empty once all were listed."""
        return [informer.trouble for informer in self.informers.values() if not informer.listed.is_set()]

    def vfs(self, pod: Pod) -> int:
        """Return how many VFs a pod asks for by claims. A cluster that does not serve `resource.k8s.io/v1` has none.

        Raises:
            NotReady: a claim or template that the pod names is not known: it does not exist, or was not reported yet.
        """
        return sum(
            self._vfs(_CLAIMS, pod.namespace, named.claim)
            if named.claim
            else self._vfs(_TEMPLATES, pod.namespace, named.template)
            for named in pod.claims
            if named.claim or named.template  # else the API server refuses the pod, or another object makes the claim
        )

    def _vfs(self, resource: str, namespace: str, name: str) -> int:
        informer = self.informers[resource]
        vfs = informer.get(namespace, name)
        if vfs is not None:
            return vfs
        if informer.absent:
            return 0
        # A pod that is let in now would get VFs beside those of its claims, and its request cannot be taken back.
        why = f" ({informer.trouble})" if informer.trouble else ""
        raise NotReady(
            f"Railnet does not know what the pod's claims ask for: {_KINDS[resource]} {name} of namespace {namespace} does not exist, "
            f"or was not reported to Railnet yet{why}; create it if it does not exist, then try again (a Job's controller does)"
        )

    def _of_claim(self, document: dict[str, Any]) -> int | None:
        owner = controller(document)
        if owner is not None and (owner.api_version, owner.kind) == ("v1", "Pod"):
            return None
        return asked_vfs.of_claim(document, self._resources)

    def _of_template(self, document: dict[str, Any]) -> int:
        return asked_vfs.of_template(document, self._resources)


def _nothing(before: int | None, after: int | None) -> None:
    """Take in a change: each review looks for itself."""
