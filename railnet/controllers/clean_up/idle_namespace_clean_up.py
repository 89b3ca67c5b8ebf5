"""The controller that deletes training namespaces in which nothing has gone on for the time that they say."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from railnet.apiserver.client import Absent, Conflict, StreamingApiServer
from railnet.apiserver.request import ApiObject, Collection, JsonObject, delete
from railnet.controllers.clean_up import namespace_contents
from railnet.controllers.events import JobEvents
from railnet.controllers.informer import Informer
from railnet.controllers.job_pods import JobPods
from railnet.controllers.training_pod import Job
from railnet.controllers.work_queue import WorkQueue
from railnet.errors import Misconfigured
from railnet.jobs.clean_up import namespace_rule
from railnet.jobs.clean_up.namespace_rule import FinishedNamespace
from railnet.jobs.clean_up.verdict import Action, Verdict
from railnet.objects.involved_object import InvolvedObject
from railnet.objects.metadata_times import created, is_deleted

_MOST_OF_ANNOTATION = 256  # characters that are kept: its author may write 256 KiB
_GATHER_SECONDS = 5.0  # after a training pod's change: the other pods of its job change at about the same time


@dataclass(frozen=True, slots=True)
class TrainingNamespace:
    """A namespace with the label.

    Attributes:
        version: its `resourceVersion`: what is deleted has still the label and the annotations that were read.
        leaving: whether it is being deleted.
    """

    name: str
    uid: str
    version: str
    created: float
    leaving: bool
    annotations: Mapping[str, str]

    @property
    def involved(self) -> InvolvedObject:
        """The namespace as what an event is about."""
        return InvolvedObject("v1", "Namespace", None, self.name, self.uid)


def training_namespace(namespace: JsonObject) -> TrainingNamespace:
    """Reduce a namespace as the API server reports it."""
    metadata = namespace["metadata"]
    return TrainingNamespace(
        name=metadata["name"],
        uid=metadata["uid"],
        version=str(metadata.get("resourceVersion") or ""),
        created=created(metadata),
        leaving=is_deleted(metadata),
        annotations={
            key: text[:_MOST_OF_ANNOTATION]
            for key, text in (metadata.get("annotations") or {}).items()
            if key in (namespace_rule.TIME, namespace_rule.VOLUMES)
        },
    )


class NamespaceCleanUp:
    """The controller.

    Attributes:
        queue: the names of the namespaces that are to be looked at.
        informer: keeps the namespaces with the label; `reconcile` needs it and the pods listed.
    """

    def __init__(
        self, api: StreamingApiServer, pods: JobPods, events: JobEvents, clock: Callable[[], float] = time.time
    ) -> None:
        """Reconcile by an API server; `clock` returns seconds since 1970."""
        self._api, self._pods, self._events, self._clock = api, pods, events, clock
        self._idle: dict[str, float | None] = {}  # by UID: since when nothing goes on there; None while something does
        self.queue: WorkQueue[str] = WorkQueue()
        selected = Collection("v1", "namespaces", labels=f"{namespace_rule.LABEL}=true")
        self.informer = Informer(api, selected, training_namespace, self._changed)
        pods.watch(self._pod_changed)

    def _changed(self, before: TrainingNamespace | None, after: TrainingNamespace | None) -> None:
        if before is not None and (after is None or after.uid != before.uid):
            self._idle.pop(before.uid, None)
        if after is not None:
            self.queue.add(after.name)

    def _pod_changed(self, job: Job) -> None:
        if self.informer.get("", job.namespace) is not None:
            self.queue.add(job.namespace, _GATHER_SECONDS)

    def reconcile(self, name: str) -> float | None:
        """Delete a namespace if its time is over; return the seconds after which to look again, None if a change will be reported.

        Raises:
            RequestFailed: a request was not done, so the namespace stays for now.
        """
        namespace = self.informer.get("", name)
        if namespace is None or namespace.leaving:
            return None
        try:
            verdict = self._verdict(namespace)
        except Misconfigured as error:
            self._events.warning(namespace.involved, "NamespaceStays", str(error))
            return None
        if verdict.action is Action.KEEP:
            self._events.warning(namespace.involved, "NamespaceStays", verdict.why)
        elif verdict.action is Action.DELETE:
            self._delete(namespace, verdict.why)
        return verdict.seconds

    def _verdict(self, namespace: TrainingNamespace) -> Verdict:
        """Decide about a namespace.

        Raises:
            Misconfigured: its label or an annotation says what cannot be done.
        """
        if namespace_rule.is_protected(namespace.name):
            raise Misconfigured(
                f"{namespace.name} is the cluster's own namespace; remove the label {namespace_rule.LABEL}"
            )
        whole_time = namespace_rule.seconds(namespace.annotations)
        since = self._idle_since(namespace)
        if since is None:
            # What goes on now cannot have been over for that time before.
            return Verdict(Action.WAIT, seconds=whole_time)
        now = self._clock()
        over = since + whole_time <= now
        claims = namespace_contents.claims(self._api, namespace.name) if over else []
        return namespace_rule.verdict(namespace.annotations, FinishedNamespace(since, claims), now)

    def _idle_since(self, namespace: TrainingNamespace) -> float | None:
        """Return since when nothing goes on in a namespace; None if something does.

        Objects that are gone leave no time. So the time begins not before the first look that finds nothing going on, if an earlier
        look of this leader found something.
        """
        contents = namespace_contents.contents(self._api, namespace.name) if not self._trains(namespace.name) else None
        if contents is None or contents.goes_on:
            self._idle[namespace.uid] = None
            return None
        now = self._clock()
        latest = max(contents.ends, default=None)
        first = max(namespace.created, now if latest is None else latest)
        before = self._idle.get(namespace.uid, first)
        since = max(now if before is None else before, namespace.created, latest or 0.0)
        self._idle[namespace.uid] = since
        return since

    def _trains(self, namespace: str) -> bool:
        """Return whether a training pod goes on in a namespace, which needs no request."""
        jobs = (job for job in self._pods.jobs() if job.namespace == namespace)
        return any(not pod.ended for job in jobs for pod in self._pods.of(job))

    def _delete(self, namespace: TrainingNamespace, why: str) -> None:
        with suppress(
            Absent, Conflict
        ):  # it is gone, or has changed: then the informer reports it, and it is looked at again
            self._api.send(
                delete(ApiObject("v1", "namespaces", namespace.name), namespace.uid, version=namespace.version)
            )
            self._events.normal(namespace.involved, "NamespaceDeleted", f"{why}; deleted namespace {namespace.name}")
