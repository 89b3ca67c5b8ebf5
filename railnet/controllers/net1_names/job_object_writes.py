"""Creating, changing and deleting the objects of one kind that a controller makes for jobs."""

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic, TypeVar

from railnet.apiserver.client import Absent, ApiServer, Conflict
from railnet.apiserver.request import ApiObject, JsonObject, create, delete, get, merge_patch
from railnet.controllers.net1_names.observed_job_objects import FoundObject, JobObject, JobObjects
from railnet.controllers.reverted_writes import RepeatedWrites
from railnet.controllers.training_pod import Job

_What = TypeVar("_What", bound=JobObject)


class Outcome(Enum):
    """What became of an object that should be."""

    DONE = auto()  # it is what it should be
    FOREIGN = auto()  # another owner has an object of this name
    LEFT_ALONE = auto()  # it is not what it should be, and was written too often


@dataclass(frozen=True, slots=True)
class JobObjectWrites(Generic[_What]):
    """Writes what differs; an answer is known at once, and not only when the watch reports it.

    Attributes:
        api: the API server.
        known: the objects that there are.
        address: returns an object's address.
        body: returns an object as it is created. A merge patch of the same content changes it.
        read: reads an object; raises KeyError, TypeError, ValueError or AttributeError if the controller made no such object.
        repeated: the writes of these objects.
    """

    api: ApiServer
    known: JobObjects[_What]
    address: Callable[[_What], ApiObject]
    body: Callable[[_What], JsonObject]
    read: Callable[[JsonObject], FoundObject[_What]]
    repeated: RepeatedWrites[Job]

    def make(self, wanted: _What) -> Outcome:
        """Make an object what it should be.

        Raises:
            RequestFailed: the request was not done, or the object has changed.
        """
        before = self.known.get(wanted.job, wanted.name)
        if before is not None and before.what == wanted and before.intact:
            return Outcome.DONE
        if not self.repeated.permit(wanted.job, wanted.name, wanted):
            return Outcome.LEFT_ALONE
        if before is not None:
            self._change(before, wanted)
        elif not self._create(wanted):
            return Outcome.FOREIGN
        self.repeated.wrote(wanted.job, wanted.name, wanted)
        return Outcome.DONE

    def keep(self, job: Job, names: Collection[str]) -> None:
        """Delete a job's objects of other names.

        Raises:
            RequestFailed: a request was not done.
        """
        for job_object in self.known.of(job):
            if job_object.what.name not in names:
                with suppress(Absent, Conflict):  # it is gone, or another object has its name
                    self.api.send(delete(self.address(job_object.what), job_object.uid))
                self.known.forget(job_object)
                self.repeated.forget(job, job_object.what.name)

    def _create(self, wanted: _What) -> bool:
        try:
            answer = self.api.send(create(self.address(wanted), self.body(wanted)))
        except Conflict:
            there = self._there(wanted)
            if there is None:
                return False
            self.known.learn(there)
            if there.what != wanted or not there.intact:
                self._change(there, wanted)
            return True
        self.known.learn(self.read(answer))
        return True

    def _there(self, wanted: _What) -> FoundObject[_What] | None:
        """Read the object that has the name of `wanted`; None if it is another owner's."""
        answer = self.api.send(get(self.address(wanted)))
        try:
            job_object = self.read(answer)
        except (KeyError, TypeError, ValueError, AttributeError):
            return None
        return job_object if job_object.what.job == wanted.job else None

    def _change(self, before: FoundObject[_What], wanted: _What) -> None:
        body = self.body(wanted)
        precondition = {"uid": before.uid, "resourceVersion": str(before.version)}
        patch = {**body, "metadata": {**body["metadata"], **precondition}}
        try:
            self.known.learn(self.read(self.api.send(merge_patch(self.address(wanted), patch))))
        except Absent:
            self.known.forget(before)
            raise
