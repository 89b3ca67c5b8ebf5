"""A pod as a controller makes it of a pod template: the template, with labels, annotations, a name and an owner. Pure."""

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

from railnet.errors import Misconfigured

JsonObject = dict[str, Any]
_INDEX = "batch.kubernetes.io/job-completion-index"
_MOST_REPLICAS = 1_000_000


class RenderedPod(NamedTuple):
    """A pod, and how many like it the controller makes.

    Attributes:
        replicas: None for one on each node.
        note: what of the pod is not known; empty if all is.
    """

    pod: JsonObject
    replicas: int | None
    note: str = ""


class JobManifest(NamedTuple):
    """An object of which a controller makes pods, and the other objects of its file."""

    document: Mapping[str, Any]
    others: tuple[Mapping[str, Any], ...] = ()

    def __str__(self) -> str:
        """Return kind and name, as messages have it."""
        metadata = self.document.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        return f"{self.kind} {name or 'without a name'!s:.80}"

    @property
    def kind(self) -> str:
        """The kind."""
        return str(self.document.get("kind"))[:60]

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata."""
        return mapping(self, self.document.get("metadata"), "metadata")

    @property
    def spec(self) -> Mapping[str, Any]:
        """The specification."""
        return mapping(self, self.document.get("spec"), "spec")

    @property
    def name(self) -> str:
        """The name, or what takes its place before the API server has made one."""
        name = self.metadata.get("name") or f"{self.metadata.get('generateName') or 'unnamed-'}xxxxx"
        if not isinstance(name, str):
            raise Misconfigured(f"{self.kind}: metadata.name is {name!r:.60}; it should be a string")
        return name

    @property
    def annotations(self) -> Mapping[str, Any]:
        """The annotations."""
        return mapping(self, self.metadata.get("annotations") or {}, "metadata.annotations")


def mapping(job: JobManifest, value: object, path: str) -> dict[str, Any]:
    """Return a value that should be a mapping.

    Raises:
        Misconfigured: it is none; the message names the job and the path.
    """
    if not isinstance(value, dict):
        raise Misconfigured(
            f"{job}: {path} is {'missing' if value is None else f'{value!r:.60}'}; it should be a mapping"
        )
    return value


def at(job: JobManifest, path: str) -> dict[str, Any]:
    """Return the mapping at a path of a job, such as `spec.template`.

    Raises:
        Misconfigured: there is none.
    """
    part: Any = job.document
    seen: list[str] = []
    for key in path.split("."):
        seen.append(key)
        part = mapping(job, part.get(key), ".".join(seen))
    return dict(part)


def number(job: JobManifest, path: str, default: int = 1) -> int:
    """Return the number at a path of a job, or the default if there is none.

    Raises:
        Misconfigured: it is no number.
    """
    *parents, last = path.split(".")
    return count_of(job, at(job, ".".join(parents)), last, path, default)


def count_of(job: JobManifest, part: Mapping[str, Any], key: str, path: str, default: int = 1) -> int:
    """Return a number of replicas of a part of a job.

    Raises:
        Misconfigured: it is no number.
    """
    value = default if part.get(key) is None else part[key]
    if type(value) is not int or not 0 <= value <= _MOST_REPLICAS:
        raise Misconfigured(f"{job}: {path} is {value!r:.60}; it should be a whole number from 0 to {_MOST_REPLICAS}")
    return value


def pod_of(
    job: JobManifest,
    template: Mapping[str, Any],
    name: str,
    labels: Mapping[str, str] | None = None,
    *,
    annotations: Mapping[str, str] | None = None,
    owner: tuple[str, str, str] | None = None,
) -> JsonObject:
    """Return a pod of a template; `owner` is the API version, the kind and the name of its controller, if that is not the job itself.

    Raises:
        Misconfigured: the template has another form.
    """
    given = mapping(job, template, "a pod template")
    metadata = mapping(job, given.get("metadata") or {}, "the metadata of a pod template")
    spec = copy.deepcopy(mapping(job, given.get("spec"), "the spec of a pod template"))
    version, kind, owner_name = owner or (str(job.document.get("apiVersion")), job.kind, job.name)
    for container in containers_of(job, spec):
        _request_limits(container)
    own_labels = mapping(job, metadata.get("labels") or {}, "the labels of a pod template")
    own_annotations = mapping(job, metadata.get("annotations") or {}, "the annotations of a pod template")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            **({"namespace": job.metadata["namespace"]} if job.metadata.get("namespace") else {}),
            "labels": {**own_labels, **(labels or {})},
            "annotations": {**own_annotations, **(annotations or {})},
            "ownerReferences": [{"apiVersion": version, "kind": kind, "name": owner_name, "controller": True}],
        },
        "spec": spec,
    }


def completion_pod(
    job: JobManifest,
    job_spec: Mapping[str, Any],
    job_name: str,
    labels: Mapping[str, str] | None = None,
    *,
    annotations: Mapping[str, str] | None = None,
) -> RenderedPod:
    """Return the first pod of a batch/v1 Job with this specification.

    Raises:
        Misconfigured: the specification has another form.
    """
    indexed = job_spec.get("completionMode") == "Indexed"
    index = {_INDEX: "0"} if indexed else {}
    own = {"batch.kubernetes.io/job-name": job_name, "job-name": job_name, **index}
    pod = pod_of(
        job,
        mapping(job, job_spec.get("template"), "the template of a Job"),
        f"{job_name}-0-xxxxx" if indexed else f"{job_name}-xxxxx",
        {**own, **(labels or {})},
        annotations={**index, **(annotations or {})},
        owner=("batch/v1", "Job", job_name),
    )
    if indexed:
        pod["spec"]["hostname"] = f"{job_name}-0"
    return RenderedPod(pod, count_of(job, job_spec, "parallelism", "parallelism"))


def containers_of(job: JobManifest, spec: Mapping[str, Any]) -> list[JsonObject]:
    """Return the containers of a pod's specification.

    Raises:
        Misconfigured: they are no list of mappings.
    """
    entries = spec.get("containers")
    if not isinstance(entries, list) or not entries:
        raise Misconfigured(f"{job}: the containers of a pod template are {entries!r:.60}; they should be a list")
    return [mapping(job, entry, "a container of a pod template") for entry in entries]


def set_variables(job: JobManifest, pod: JsonObject, names: tuple[str, ...], variables: Mapping[str, str]) -> None:
    """Give variables to the containers of some names, or to the first container; those that a container has stay.

    Raises:
        Misconfigured: a container's variables are no list of mappings.
    """
    containers = containers_of(job, pod["spec"])
    for container in [entry for entry in containers if entry.get("name") in names] or containers[:1]:
        entries = container.get("env") or []
        if not isinstance(entries, list):
            raise Misconfigured(f"{job}: env of a container is {entries!r:.60}; it should be a list")
        own = [mapping(job, entry, "a variable of a container").get("name") for entry in entries]
        added = [{"name": name, "value": value} for name, value in variables.items() if name not in own]
        container["env"] = [*entries, *added]


def _request_limits(container: JsonObject) -> None:
    """Request what is limited, as the API server does."""
    resources = container.get("resources")
    if isinstance(resources, dict) and isinstance(resources.get("limits"), dict):
        requests = resources.get("requests")
        resources["requests"] = {**resources["limits"], **(requests if isinstance(requests, dict) else {})}
