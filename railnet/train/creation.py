"""All objects of a job are created, or none stays.

The owner comes first. Until its annotation says that all others have been created, each end of the command deletes the owner, and the
cluster deletes what belongs to it. A machine that dies in the middle leaves an owner without that annotation: the next `up` of the same
file creates what is missing.
"""

import random
import time
import uuid
from collections.abc import Callable
from dataclasses import fields
from enum import Enum
from http import HTTPStatus
from typing import NamedTuple

from railnet.apiserver.client import Absent, ApiServer, Conflict, RequestFailed
from railnet.apiserver.request import ApiObject, Collection, JsonObject, create, delete, get, list_page, merge_patch
from railnet.backoff import Backoff
from railnet.cli.messages import say
from railnet.errors import Misconfigured
from railnet.jobs.railnet_labels import TRAIN
from railnet.jobs.train_job.mpi_objects import SUCCESS_POLICY, SshKeys, mpi_objects
from railnet.jobs.train_job.objects import AS, COMPLETE, FILE, objects, owned, owner
from railnet.jobs.train_job.operator_objects import OPERATOR_OBJECTS, RUNTIME, objects_as, refers_to_runtime
from railnet.jobs.train_job.train_job import TrainingJob
from railnet.objects.metadata_times import is_deleted
from railnet.objects.owner_reference import references
from railnet.train.failure import TrainFailed
from railnet.train.job_file import job_of
from railnet.train.job_lookup import CONFIG_MAPS, address, is_complete, is_owner, named

_RUN = "railnet.io/train-run"  # annotation: which run of the command has created the object, where its answer was lost
_TRIES = 3
# Trainer's webhook refuses a TrainJob until it has heard of its TrainingRuntime, which was created a moment ago: six seconds at least.
_RUNTIME_FIELD = "spec.runtimeRef"  # the field that the webhook names then, and when there is no such runtime at all
_UNTIL_KNOWN, _UNTIL_KNOWN_TRIES = Backoff(first_seconds=0.4, longest_seconds=6.4), 5


class CreationRefused(TrainFailed):
    """The job cannot be created as it stands; the message says why and what to do."""


class CreationOutcome(Enum):
    """The work that a run had to do."""

    CREATED = "created"
    COMPLETED = "completed"
    UNCHANGED = "unchanged"


class JobFile(NamedTuple):
    """A file that has been read and checked.

    Attributes:
        made_as: the operator's object that the job is, by its name in `OPERATOR_OBJECTS`; None for plain Jobs.
        keys: of an MPI job's ssh, where no operator makes them; None for other jobs.
    """

    text: str
    job: TrainingJob
    made_as: str | None = None
    keys: SshKeys | None = None

    @property
    def owner(self) -> JsonObject:
        """The object to which all others belong."""
        return owner(self.job, self.text, self.made_as)

    @property
    def objects(self) -> list[JsonObject]:
        """All objects but the owner, in the order of their creation."""
        if self.made_as is not None:
            return objects_as(self.job, self.made_as)
        return list(objects(self.job) if self.keys is None else mpi_objects(self.job, self.keys))


class Creation:
    """Creates one job."""

    def __init__(
        self,
        api: ApiServer,
        file: JobFile,
        say: Callable[[str], None],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Create the job of a file; `say` is told each phase."""
        self._api, self._file, self._job, self._text, self._say = api, file, file.job, file.text, say
        self._sleep = sleep
        self._run = str(uuid.uuid4())
        self._place = named(CONFIG_MAPS, file.job.name, file.job.in_namespace)
        self._mine: list[ApiObject] = []  # objects that this run may have created, and deletes if it is ended

    def run(self) -> CreationOutcome:
        """Create what is missing.

        Raises:
            CreationRefused: another job, or an object of something else, has one of the names.
            RequestFailed: the API server refuses an object.
        """
        check_priority(self._api, self._job)
        check_served(self._api, self._file)
        self._create_namespace()
        self._mine.append(self._place)
        config_map = self._create_owner()
        if is_complete(config_map):
            return CreationOutcome.UNCHANGED
        uid, whole = config_map["metadata"]["uid"], self._file.objects
        self._say(f"creating {len(whole)} objects in namespace {self._job.in_namespace}")
        for body in whole:
            self._create_owned(owned(body, uid), uid)
        # The UID is a precondition: it fails if another `railnet train down` was faster.
        self._api.send(
            merge_patch(self._place, {"metadata": {"uid": uid, "annotations": {COMPLETE: "true", _RUN: None}}})
        )
        return CreationOutcome.CREATED if self._is_mine(config_map) else CreationOutcome.COMPLETED

    def take_back(self) -> list[str]:
        """Delete what this run has created, unless all of it was; return what cannot be deleted, and why."""
        left = []
        for place in reversed(self._mine):  # the owner before its namespace
            try:
                document = self._api.send(get(place))
                if place == self._place and is_complete(document):
                    break
                if self._is_mine(document) or (
                    place == self._place and is_owner(document, place.name) and self._is_same(document)
                ):
                    self._api.send(delete(place, document["metadata"]["uid"]))
            except (Absent, Conflict):
                continue
            except RequestFailed as error:
                left.append(f"{place} is left: {error}")
        return left

    def _create_namespace(self) -> None:
        place = named("namespaces", self._job.in_namespace, None)
        if namespace_exists(self._api, self._job):
            return
        self._say(f"creating namespace {place.name}")
        self._mine.append(place)
        body = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": place.name, "labels": {TRAIN: self._job.name}},
        }
        body["metadata"]["annotations"] = {_RUN: self._run}  # type: ignore[index]
        try:
            self._api.send(create(place, body))
        except Conflict:  # by another user, or by the first try, of which the answer was lost
            return

    def _create_owner(self) -> JsonObject:
        """Create the owner, or return the one that there is of the same job."""
        body = self._file.owner
        body["metadata"]["annotations"] = {**body["metadata"].get("annotations", {}), _RUN: self._run}
        for _ in range(_TRIES):
            try:
                return self._api.send(create(self._place, body))
            except Conflict as conflict:
                try:
                    config_map = self._api.send(get(self._place))
                except Absent:
                    continue
                self._check_same(config_map, conflict)
                return config_map
        raise CreationRefused(
            f"{self._place} is created and deleted by something else again and again; try again later"
        )

    def _check_same(self, config_map: JsonObject, conflict: Conflict) -> None:
        namespace, name = self._job.in_namespace, self._job.name
        if not is_owner(config_map, name):
            raise CreationRefused(
                f"namespace {namespace} has a ConfigMap {name} that is no job of railnet train ({conflict}); choose another name, "
                "or another namespace"
            )
        if is_deleted(config_map["metadata"]):
            raise CreationRefused(f"job {name} in namespace {namespace} is being deleted; try again when it is gone")
        if not self._is_same(config_map):
            raise CreationRefused(
                f"namespace {namespace} has another job {name} already{self._difference(config_map)}; railnet train down {name} "
                f"-n {namespace} removes it, or choose another name"
            )

    def _is_same(self, config_map: JsonObject) -> bool:
        if _as(config_map) != self._file.made_as:
            return False
        other = _job(config_map)
        return other == self._job if other else (config_map.get("data") or {}).get(FILE) == self._text

    def _difference(self, config_map: JsonObject) -> str:
        other = _job(config_map)
        if _as(config_map) != self._file.made_as:
            return f", which is {_as(config_map) or 'plain Jobs'}"
        if other is None:
            return ""
        names = [field.name for field in fields(other) if getattr(other, field.name) != getattr(self._job, field.name)]
        return f", with another {', '.join(names)}"

    def _create_owned(self, body: JsonObject, uid: str) -> None:
        place = address(body)
        try:
            self._create(place, body)
        except Conflict:
            try:
                document = self._api.send(get(place))
            except Absent:
                self._create(place, body)
                return
            if all(reference.get("uid") != uid for reference in references(document["metadata"])):
                raise CreationRefused(
                    f"{body['kind']} {place.name} exists in namespace {place.namespace} and does not belong to this job; delete "
                    "it, or choose another name"
                ) from None

    def _create(self, place: ApiObject, body: JsonObject) -> None:
        """Create an object; one that is refused because of its runtime is tried again, until the operator must know the runtime."""
        for refusals in range(1, 1 + _UNTIL_KNOWN_TRIES) if refers_to_runtime(body) else ():
            try:
                self._create_once(place, body)
            except RequestFailed as error:
                if not misses_runtime(body, error):
                    raise
                if refusals == 1:
                    say(f"waiting until the operator knows {RUNTIME} {place.name}")
                self._sleep(_UNTIL_KNOWN.pause(refusals, random.random()))  # noqa: S311 - no secret
            else:
                return
        self._create_once(place, body)

    def _create_once(self, place: ApiObject, body: JsonObject) -> None:
        check_stored(body, self._api.send(create(place, body)))

    def _is_mine(self, document: JsonObject) -> bool:
        return (document["metadata"].get("annotations") or {}).get(_RUN) == self._run


def misses_runtime(body: JsonObject, error: RequestFailed) -> bool:
    """Return whether an object is refused because its operator knows no such runtime, perhaps not yet."""
    if isinstance(error, (Absent, Conflict)) or error.temporary:
        return False
    return refers_to_runtime(body) and _RUNTIME_FIELD in str(error)


def check_stored(body: JsonObject, stored: JsonObject) -> None:
    """Find out whether the API server has kept what the job needs of an object.

    Raises:
        CreationRefused: it has not, because it is older than that field.
    """
    if SUCCESS_POLICY in body.get("spec", {}) and SUCCESS_POLICY not in stored["spec"]:
        raise CreationRefused(
            f"the API server is older than Kubernetes 1.31: it has dropped {SUCCESS_POLICY} of {address(body)}, by which the workers end when mpirun has "
            "ended; upgrade it, or give the job to mpi-operator with --as mpijob"
        )


def check_priority(api: ApiServer, job: TrainingJob) -> None:
    """Find out whether the cluster has the job's PriorityClass.

    Raises:
        CreationRefused: it has not.
    """
    if job.priority is None:
        return
    try:
        api.send(get(ApiObject("scheduling.k8s.io/v1", "priorityclasses", job.priority)))
    except Absent:
        raise CreationRefused(
            f"priority is {job.priority}, and the cluster has no such PriorityClass; set priorityClasses.enabled=true of the chart, or "
            "choose another one (kubectl get priorityclasses)"
        ) from None
    except RequestFailed as error:
        if error.status != HTTPStatus.FORBIDDEN:  # without that right, the pods' refusal says it
            raise


def check_served(api: ApiServer, file: JobFile) -> None:
    """Find out whether the cluster has the kind of the operator's object that the job is to be.

    Raises:
        CreationRefused: it has not.
    """
    if file.made_as is None:
        return
    wanted = OPERATOR_OBJECTS[file.made_as]
    try:
        api.send(list_page(Collection(wanted.api_version, wanted.resource, file.job.in_namespace), 1))
    except Absent:
        raise CreationRefused(
            f"the cluster has no {wanted.kind} ({wanted.api_version}): install {wanted.operator}, or leave --as {file.made_as} out"
        ) from None
    except RequestFailed as error:
        if error.status != HTTPStatus.FORBIDDEN:  # a user may create what they may not list
            raise


def namespace_exists(api: ApiServer, job: TrainingJob) -> bool:
    """Return whether the job's namespace exists, as far as this user may know."""
    try:
        api.send(get(named("namespaces", job.in_namespace, None)))
    except Absent:
        return False
    except RequestFailed as error:
        if error.status != HTTPStatus.FORBIDDEN:  # a user of one namespace may not read it, and need not
            raise
    return True


def _as(config_map: JsonObject) -> str | None:
    name: str | None = (config_map["metadata"].get("annotations") or {}).get(AS)
    return name


def _job(config_map: JsonObject) -> TrainingJob | None:
    """Return the job that an owner says; None if another version of Railnet wrote a file that this one cannot read."""
    try:
        return job_of(str((config_map.get("data") or {}).get(FILE, "")), FILE, _as(config_map))
    except Misconfigured:
        return None
