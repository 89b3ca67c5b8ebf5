"""Where a job's objects are in the cluster, and which job a name means."""

from http import HTTPStatus

from railnet.apiserver.client import Absent, ApiServer, RequestFailed
from railnet.apiserver.object_watch import pages
from railnet.apiserver.request import ApiObject, Collection, JsonObject, get
from railnet.jobs.railnet_labels import TRAIN
from railnet.jobs.train_job.objects import COMPLETE
from railnet.jobs.train_job.operator_objects import OPERATOR_OBJECTS, RUNTIME, RUNTIMES
from railnet.train.failure import TrainFailed

SERVICES, DEPLOYMENTS, JOBS, PODS, CONFIG_MAPS = "services", "deployments", "jobs", "pods", "configmaps"
SECRETS = "secrets"
_VERSIONS = {
    SERVICES: "v1",
    DEPLOYMENTS: "apps/v1",
    JOBS: "batch/v1",
    PODS: "v1",
    CONFIG_MAPS: "v1",
    SECRETS: "v1",
    "namespaces": "v1",
    "events": "v1",
    "nodes": "v1",
}
_RESOURCES = {
    "Service": SERVICES,
    "Deployment": DEPLOYMENTS,
    "Job": JOBS,
    "ConfigMap": CONFIG_MAPS,
    "Secret": SECRETS,
    "Namespace": "namespaces",
    **{wanted.kind: wanted.resource for wanted in OPERATOR_OBJECTS.values()},
    RUNTIME: RUNTIMES,
}


class NoSuchJob(TrainFailed):
    """No job, or more than one, has that name; the message says what to do."""


def address(document: JsonObject) -> ApiObject:
    """Return where an object is, or will be."""
    metadata = document["metadata"]
    return ApiObject(document["apiVersion"], _RESOURCES[document["kind"]], metadata["name"], metadata.get("namespace"))


def named(resource: str, name: str, namespace: str | None) -> ApiObject:
    """Return where an object of a resource is."""
    return ApiObject(_VERSIONS[resource], resource, name, namespace)


def collection(resource: str, namespace: str | None = None, job: str = "", fields: str = "") -> Collection:
    """Return the objects of a resource: of a namespace, or of all; of one job, or of all jobs of `railnet train`."""
    return Collection(_VERSIONS[resource], resource, namespace, f"{TRAIN}={job}" if job else TRAIN, fields)


def everything(resource: str, namespace: str | None = None, fields: str = "") -> Collection:
    """Return all objects of a resource, also those of no job."""
    return Collection(_VERSIONS[resource], resource, namespace, "", fields)


def listed(api: ApiServer, about: Collection) -> list[JsonObject]:
    """Return all objects of a collection."""
    return [document for page in pages(api, about) for document in page.found]


def find(api: ApiServer, name: str, namespace: str | None, *, elsewhere: bool = True) -> JsonObject:
    """Return a job's owner: in a namespace, else in the one of the job's name, else wherever it is.

    Without `elsewhere`, for what deletes a job, one in another namespace is named and not returned.

    Raises:
        NoSuchJob: there is no such job, or there are several.
        RequestFailed: the API server does not answer.
    """
    try:
        config_map = api.send(get(named(CONFIG_MAPS, name, namespace or name)))
    except Absent:
        config_map = {}
    except ValueError as error:
        raise NoSuchJob(str(error)) from None
    if is_owner(config_map, name):
        return config_map
    if namespace is not None:
        raise NoSuchJob(f"namespace {namespace} has no job {name} of railnet train; railnet train ls shows all jobs")
    owner = _anywhere(api, name)
    if not elsewhere:
        place = owner["metadata"]["namespace"]
        raise NoSuchJob(f"namespace {name} has no job {name}; one is in namespace {place}: choose it with -n {place}")
    return owner


def is_owner(document: JsonObject, name: str) -> bool:
    """Return whether an object is the owner of the job of a name."""
    labels = (document.get("metadata") or {}).get("labels") or {}
    return labels.get(TRAIN) == name and document["metadata"]["name"] == name


def is_complete(owner: JsonObject) -> bool:
    """Return whether all objects of a job have been created."""
    return (owner["metadata"].get("annotations") or {}).get(COMPLETE) == "true"


def _anywhere(api: ApiServer, name: str) -> JsonObject:
    try:
        owners = [
            config_map for config_map in listed(api, collection(CONFIG_MAPS, job=name)) if is_owner(config_map, name)
        ]
    except RequestFailed as error:
        if error.status == HTTPStatus.FORBIDDEN:
            raise NoSuchJob(
                f"namespace {name} has no job {name}, and you may not look into all namespaces; name its namespace with -n"
            ) from None
        raise
    if len(owners) != 1:
        places = ", ".join(sorted(owner["metadata"]["namespace"] for owner in owners))
        hint = f"there are jobs {name} in the namespaces {places}; choose one with -n" if owners else ""
        raise NoSuchJob(hint or f"there is no job {name} of railnet train; railnet train ls shows all jobs")
    return owners[0]
