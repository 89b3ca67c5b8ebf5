"""A request to the API server: a verb, the object or the objects it is for, and a JSON body. Sending it is `client`'s.

Source: kubernetes.io/docs/reference/using-api/api-concepts.
"""

import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Literal
from urllib.parse import urlencode

JsonObject = dict[str, Any]
JSON = "application/json"
_MAX_NAME = 253
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


class Verb(Enum):
    """The right that a request needs, as RBAC names it, and the method of HTTP."""

    GET = ("get", "GET")
    CREATE = ("create", "POST")
    UPDATE = ("update", "PUT")
    PATCH = ("patch", "PATCH")
    DELETE = ("delete", "DELETE")
    LIST = ("list", "GET")
    WATCH = ("watch", "GET")

    def __init__(self, right: str, method: str) -> None:
        """Name the right that RBAC must grant, and the method."""
        self.right, self.method = right, method


@dataclass(frozen=True, slots=True)
class ApiObject:
    """The address of one object.

    The names may come from the container runtime, and the request has Railnet's rights: a name that is no name is refused
    before it becomes part of a path.

    Attributes:
        api_version: `v1`, or group and version: `admissionregistration.k8s.io/v1`.
        resource: the plural name of the kind: `pods`.
        namespace: None for an object that belongs to the whole cluster.
        subresource: `status`, `eviction` and their like, or empty.

    Raises:
        ValueError: the name or the namespace is not a DNS subdomain (RFC 1123).
    """

    api_version: str
    resource: str
    name: str
    namespace: str | None = None
    subresource: str = ""

    def __post_init__(self) -> None:
        """Check the names that come from outside."""
        for name in (self.name, *(() if self.namespace is None else (self.namespace,))):
            _check_name(name)

    def __str__(self) -> str:
        """Name the object in a message."""
        resource = "/".join(filter(None, (self.resource, self.name, self.subresource)))
        return resource if self.namespace is None else f"{resource} in namespace {self.namespace}"

    @property
    def collection(self) -> str:
        """The path of all objects of the same kind and namespace."""
        return Collection(self.api_version, self.resource, self.namespace).path

    @property
    def path(self) -> str:
        """The path of the object itself."""
        return "/".join(filter(None, (self.collection, self.name, self.subresource)))


@dataclass(frozen=True, slots=True)
class Collection:
    """All objects of one kind.

    Attributes:
        namespace: only the objects of this namespace; None for the objects of all namespaces.
        labels: a selector of labels, such as `app=train`; empty for all.
        fields: a selector of fields, such as `spec.nodeName=a`; empty for all.

    Raises:
        ValueError: the namespace is not a DNS subdomain (RFC 1123); an empty one would be all namespaces.
    """

    api_version: str
    resource: str
    namespace: str | None = None
    labels: str = ""
    fields: str = ""

    def __post_init__(self) -> None:
        """Check the name that may come from outside."""
        if self.namespace is not None:
            _check_name(self.namespace)

    def __str__(self) -> str:
        """Name the objects in a message."""
        return self.resource if self.namespace is None else f"{self.resource} in namespace {self.namespace}"

    @property
    def path(self) -> str:
        """The path of the collection, without the selectors."""
        prefix = "/apis" if "/" in self.api_version else "/api"
        scope = () if self.namespace is None else ("namespaces", self.namespace)
        return "/".join((prefix, self.api_version, *scope, self.resource))

    def query(self, **more: str | int) -> str:
        """Return the query of a request: the selectors, and `more` parameters; those without a value are left out."""
        parameters = {"labelSelector": self.labels, "fieldSelector": self.fields, **more}
        # JSON may have half a surrogate pair, which no encoding has
        return urlencode({key: value for key, value in parameters.items() if value}, errors="replace")


def _check_name(name: str) -> None:
    if len(name) > _MAX_NAME or _NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r:.80} cannot be the name of an API object: it is not a DNS subdomain")


@dataclass(frozen=True, slots=True)
class ApiGroup:
    """A group of kinds, such as `discovery.k8s.io`: a GET answers which versions of it are served."""

    name: str

    def __str__(self) -> str:
        """Name the group in a message."""
        return f"group {self.name}"

    @property
    def resource(self) -> str:
        """The name under which a request for it is counted."""
        return "apigroups"

    @property
    def path(self) -> str:
        """The path of the group."""
        return f"/apis/{self.name}"


@dataclass(frozen=True, slots=True)
class ServerVersion:
    """The API server's version of Kubernetes: `major` and `minor` of the answer, which any account may read (system:public-info-viewer)."""

    def __str__(self) -> str:
        """Name it in a message."""
        return "the API server's version"

    @property
    def resource(self) -> str:
        """The name under which a request for it is counted."""
        return "version"

    @property
    def path(self) -> str:
        """The path of the version."""
        return "/version"


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `str()` says it in words: `patch pods/train-0/status in namespace ml`.

    Attributes:
        query: encoded for a URL.
        most_bytes: how long its answer may be where that is less than the client reads of any answer.
    """

    verb: Verb
    about: ApiObject | Collection | ApiGroup | ServerVersion
    body: JsonObject | list[JsonObject] | None = None
    content_type: str = JSON
    query: str = ""
    accept: str = JSON
    most_bytes: int | None = None

    def __str__(self) -> str:
        """Name the request in a message."""
        return f"{self.verb.right} {self.about}"

    @property
    def method(self) -> str:
        """The method of HTTP."""
        return self.verb.method

    @property
    def path(self) -> str:
        """The path of HTTP, with the query: an object is created below its collection, and a subresource below its object."""
        about, path = self.about, self.about.path
        if self.verb is Verb.CREATE and isinstance(about, ApiObject) and not about.subresource:
            path = about.collection
        return f"{path}?{self.query}" if self.query else path


def get(about: ApiObject | ApiGroup | ServerVersion) -> Request:
    """Read an object, which versions of a group are served, or the API server's own version."""
    return Request(Verb.GET, about)


def create(about: ApiObject, body: JsonObject) -> Request:
    """Create an object that does not exist yet."""
    return Request(Verb.CREATE, about, body)


def create_dry(about: ApiObject, body: JsonObject) -> Request:
    """Ask what would be stored of an object that does not exist yet: fields of a feature gate that is off are left out. Nothing is stored."""
    return Request(Verb.CREATE, about, body, query="dryRun=All")


def update(about: ApiObject, body: JsonObject) -> Request:
    """Replace an object; a `resourceVersion` in the body is a precondition."""
    return Request(Verb.UPDATE, about, body)


def merge_patch(about: ApiObject, patch: JsonObject) -> Request:
    """Change an object by a merge patch (RFC 7396)."""
    return Request(Verb.PATCH, about, patch, "application/merge-patch+json")


def strategic_merge_patch(about: ApiObject, patch: JsonObject) -> Request:
    """Change an object as a merge patch does, but a list that has a merge key is merged entry by entry (sig-api-machinery/strategic-merge-patch)."""
    return Request(Verb.PATCH, about, patch, "application/strategic-merge-patch+json")


def json_patch(about: ApiObject, steps: list[JsonObject]) -> Request:
    """Change an object by the steps of a JSON patch (RFC 6902); a step `test` is a precondition."""
    return Request(Verb.PATCH, about, steps, "application/json-patch+json")


def apply(about: ApiObject, body: JsonObject, owner: str) -> Request:
    """Have an object's fields as they are in the body, by server-side apply; a UID in the body is a precondition.

    `owner` is the field manager: fields that it applied before, and that the body lacks, are removed. Fields of other owners are taken over.
    """
    query = urlencode({"fieldManager": owner, "force": "true"})
    return Request(Verb.PATCH, about, body, "application/apply-patch+yaml", query=query)  # JSON is YAML


def delete(
    about: ApiObject,
    uid: str,
    propagation: Literal["Background", "Foreground", "Orphan"] = "Background",
    version: str = "",
) -> Request:
    """Delete an object, unless it is another one of the same name: a UID is a precondition. `propagation` is for what it owns.

    A `resourceVersion`, if there is one, is a precondition as well: the object is not deleted if it has changed.
    """
    preconditions = {"uid": uid, **({"resourceVersion": version} if version else {})}
    return Request(Verb.DELETE, about, {"preconditions": preconditions, "propagationPolicy": propagation})


def evict(pod: ApiObject, uid: str) -> Request:
    """Delete a pod unless a PodDisruptionBudget forbids it, which is answered by 429; a UID is a precondition.

    The pod gets the condition DisruptionTarget, so that a Job's podFailurePolicy can leave it out (policy/v1).
    """
    about = replace(pod, subresource="eviction")
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": uid}},
    }
    return Request(Verb.CREATE, about, body)


def list_page(about: Collection, limit: int, proceed: str = "", most_bytes: int | None = None) -> Request:
    """Read at most `limit` objects; `proceed` is `metadata.continue` of the page before."""
    return Request(Verb.LIST, about, query=about.query(limit=limit, **{"continue": proceed}), most_bytes=most_bytes)


def watch(about: Collection, version: str, seconds: int) -> Request:
    """Be sent every change after a `resourceVersion`, for at most `seconds`; bookmarks keep the version young."""
    query = about.query(watch="true", resourceVersion=version, timeoutSeconds=seconds, allowWatchBookmarks="true")
    return Request(Verb.WATCH, about, query=query)


def log(about: ApiObject, **parameters: str | int) -> Request:
    """Read a container's log, which is text; `about` has the subresource `log`. The parameters are the API's, such as `follow`."""
    query = urlencode(parameters)
    return Request(Verb.GET, about, query=query, accept="*/*")  # kube-apiserver answers 406 to JSON here
