"""The object that a training job began with: the last of a pod's owners, such as the TrainJob of a JobSet of a Job of a pod."""

import logging
import re
import threading
from collections.abc import Mapping
from enum import Enum, auto

from railnet.apiserver.client import Absent, ApiServer, RequestFailed
from railnet.apiserver.request import ApiObject, JsonObject, get
from railnet.objects.metadata_times import created_text, is_deleted
from railnet.objects.owner_reference import OwnerReference, controller

_log = logging.getLogger(__name__)
DEEPEST = 6  # TrainJob, JobSet, Job, pod are four
_REMEMBERED = 20_000
_LONGEST_UID = 128  # the API server makes UIDs of 36 characters, and accepts any text as an owner's
# The API server accepts any text as an owner's version and name, and both become part of a path.
_VERSION = re.compile(r"v[0-9]{1,3}((alpha|beta)[0-9]{1,3})?")
# The resources of the kinds that own a training pod, or own its owner, by group and kind. The ClusterRole grants `get` on each of them.
_RESOURCES = {
    ("batch", "Job"): "jobs",
    ("apps", "ReplicaSet"): "replicasets",
    ("apps", "Deployment"): "deployments",
    ("apps", "StatefulSet"): "statefulsets",
    ("jobset.x-k8s.io", "JobSet"): "jobsets",
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): "leaderworkersets",
    ("batch.volcano.sh", "Job"): "jobs",
    ("trainer.kubeflow.org", "TrainJob"): "trainjobs",
    ("ray.io", "RayCluster"): "rayclusters",
    ("ray.io", "RayJob"): "rayjobs",
    ("ray.io", "RayService"): "rayservices",
    **{("kubeflow.org", f"{kind}Job"): f"{kind.lower()}jobs" for kind in ("TF", "PyTorch", "MPI", "XGBoost", "Paddle", "JAX")},
    **{
        ("training.kubedl.io", f"{kind}Job"): f"{kind.lower()}jobs"
        for kind in ("TF", "PyTorch", "MPI", "XGBoost", "XDL", "Mars", "ElasticDL")
    },
}  # fmt: skip


# These make one job after another, and outlive each of them: what belongs to a job must not stay until they are gone.
SCHEDULES = ("CronJob", "Cron", "RayCronJob")


def known_kinds() -> Mapping[tuple[str, str], str]:
    """Return the resource of each kind that may own a training pod, by group and kind."""
    return _RESOURCES


def address(namespace: str, owner: OwnerReference) -> ApiObject | None:
    """Return the address of an owner; None if its kind is not known, or no object can have its version, name and UID."""
    group, _, version = owner.api_version.rpartition("/")
    resource = _RESOURCES.get((group, owner.kind))
    if resource is None or _VERSION.fullmatch(version) is None or len(owner.uid) > _LONGEST_UID:
        return None
    try:
        return ApiObject(owner.api_version, resource, owner.name, namespace)
    except ValueError:  # no object has this name
        return None


def read_owner(api: ApiServer, namespace: str, owner: OwnerReference) -> JsonObject | None:
    """Return an owner; None if it is gone, is of a kind that is not known, or may not be read.

    Raises:
        RequestFailed: the API server did not answer; the next call asks again.
    """
    about = address(namespace, owner)
    if about is None:
        return None
    try:
        owner_object = api.send(get(about))
    except Absent:  # deleted: its pods follow
        return None
    except RequestFailed as error:
        if error.temporary:
            raise
        _log.warning("%s; it is taken for the job's root", error)
        return None
    return owner_object if owner_object["metadata"]["uid"] == owner.uid else None


class Life(Enum):
    """An object's distance from its end."""

    THERE = auto()
    LEAVING = auto()  # it has been deleted, and what it owns goes before it
    GONE = auto()
    UNKNOWN = auto()  # it is of a kind that is not known, or may not be read


class Owners:
    """Finds roots through the API server, and remembers the owners that it has seen: an owner's owner never changes.

    A pod's author writes the whole reference, and may write the UID of any object of the cluster into it. So what is remembered of a
    reference counts for the same reference in the same namespace alone: the author of such a pod could have had it by the object itself.
    """

    def __init__(self, api: ApiServer) -> None:
        """Ask an API server."""
        self._api = api
        self._lock = threading.Lock()
        self._above: dict[str, dict[OwnerReference, OwnerReference | None]] = {}  # by namespace
        self._remembered = 0

    def root(self, namespace: str, owner: OwnerReference) -> OwnerReference:
        """Return the last of an object's owners. It is `owner` itself if that has no owner, or is of a kind that is not known.

        A schedule, such as a CronJob, is no root: the job that it made is.

        Raises:
            RequestFailed: the API server did not answer; the next call asks again.
        """
        for _ in range(DEEPEST):
            above = self.above(namespace, owner)
            if above is None or above.kind in SCHEDULES:
                return owner
            owner = above
        return owner

    def life(self, namespace: str, owner: OwnerReference) -> Life:
        """Return whether an object is still there; this asks the API server each time.

        Raises:
            RequestFailed: the API server did not answer; the next call asks again.
        """
        about = address(namespace, owner)
        if about is None:
            return Life.UNKNOWN
        try:
            owner_object = self._api.send(get(about))
        except Absent:
            return Life.GONE
        except RequestFailed as error:
            if error.temporary:
                raise
            return Life.UNKNOWN
        metadata = owner_object["metadata"]
        if metadata["uid"] != owner.uid:
            return Life.GONE
        return Life.LEAVING if is_deleted(metadata) else Life.THERE

    def above(self, namespace: str, owner: OwnerReference) -> OwnerReference | None:
        """Return the owner of an object; None if it has none, or is of a kind that is not known.

        Raises:
            RequestFailed: the API server did not answer; the next call asks again.
        """
        if address(namespace, owner) is None:
            return None
        with self._lock:
            of_namespace = self._above.get(namespace, {})
            if owner in of_namespace:
                return of_namespace[owner]
        owner_object = read_owner(self._api, namespace, owner)
        above = None if owner_object is None else controller(owner_object)
        with self._lock:
            self._remember(namespace, owner, above)
        return above

    def _remember(self, namespace: str, owner: OwnerReference, above: OwnerReference | None) -> None:
        """Remember an answer. If there are too many, the namespace with the most loses its oldest one, and no other namespace any."""
        of_namespace = self._above.setdefault(namespace, {})
        self._remembered += owner not in of_namespace
        of_namespace[owner] = above
        if self._remembered > _REMEMBERED:
            most = max(self._above, key=lambda name: len(self._above[name]))
            del self._above[most][next(iter(self._above[most]))]
            self._remembered -= 1
            if not self._above[most]:
                del self._above[most]

    def created(self, namespace: str, owner: OwnerReference) -> str:
        """Return when an object was created, as the API server writes times; empty if that cannot be known.

        Raises:
            RequestFailed: the API server did not answer; the next call asks again.
        """
        about = address(namespace, owner)
        if about is None:
            return ""
        try:
            owner_object = self._api.send(get(about))
        except RequestFailed as error:
            if error.temporary:
                raise
            return ""
        metadata = owner_object["metadata"]
        return created_text(metadata) if metadata["uid"] == owner.uid else ""
