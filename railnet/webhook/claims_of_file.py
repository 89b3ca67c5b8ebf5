"""How many VFs pods ask for by the ResourceClaims and the ResourceClaimTemplates that are in the same file. No I/O."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from railnet.errors import Misconfigured, NotReady
from railnet.objects.pod import NamedClaim, Pod
from railnet.webhook import asked_vfs

_CLAIM, _TEMPLATE = "ResourceClaim", "ResourceClaimTemplate"
_Count = Callable[[Mapping[str, Any], Collection[str]], int]
_COUNTS: Final[Mapping[str, _Count]] = {_CLAIM: asked_vfs.of_claim, _TEMPLATE: asked_vfs.of_template}


class ClaimsOfFile:
    """The claims and templates of a file; `resources` are those of the pools."""

    def __init__(self, objects: Iterable[Mapping[str, Any]], resources: Collection[str]) -> None:
        """Count what each asks for; other objects are passed over.

        Raises:
            Misconfigured: a claim or template is malformed.
        """
        self._vfs: dict[tuple[str, str, str], int] = {}
        for document in objects:
            if (kind := document["kind"]) in _COUNTS:
                metadata = document.get("metadata")
                known = metadata if isinstance(metadata, dict) else {}
                name, namespace = str(known.get("name") or ""), str(known.get("namespace") or "default")
                counted = {**document, "metadata": {**known, "name": name, "namespace": namespace}}
                self._vfs[kind, namespace, name] = _counted(kind, name, counted, resources)

    def vfs(self, pod: Pod) -> int:
        """Return how many VFs a pod asks for by claims.

        Raises:
            NotReady: a claim or template that the pod names is not in the file.
        """
        return sum(self._of(pod.namespace or "default", named) for named in pod.claims if named.claim or named.template)

    def _of(self, namespace: str, named: NamedClaim) -> int:
        kind, name = (_CLAIM, named.claim) if named.claim else (_TEMPLATE, named.template)
        vfs = self._vfs.get((kind, namespace, name))
        if vfs is None:
            raise NotReady(
                f"{kind} {name} of namespace {namespace} is not in the file; add it, such as the output of "
                f"kubectl get {kind.lower()} {name} -n {namespace} -o yaml"
            )
        return vfs


def _counted(kind: str, name: str, document: Mapping[str, Any], resources: Collection[str]) -> int:
    try:
        return _COUNTS[kind](document, resources)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Misconfigured(f"{kind} {name or 'without a name'} is malformed: {error!r:.200}") from None
