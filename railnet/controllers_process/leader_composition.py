"""Composes what the leader does: the informers, the queues and the workers of all controllers."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from railnet.apiserver.client import RequestFailed, StreamingApiServer
from railnet.apiserver.event import Event
from railnet.apiserver.oldest_kubernetes import said, too_old
from railnet.apiserver.outbox import Message, Outbox
from railnet.apiserver.request import Collection, ServerVersion, get
from railnet.configuration import Configuration
from railnet.controllers import worker
from railnet.controllers.clean_up.idle_namespace_clean_up import NamespaceCleanUp
from railnet.controllers.clean_up.parameter_server_clean_up import CleanUp
from railnet.controllers.events import JobEvents
from railnet.controllers.gangs.placement import GangPlacement
from railnet.controllers.informer import Informer
from railnet.controllers.job_pods import JobPods
from railnet.controllers.net1_names.net1_names_controller import Net1Services
from railnet.controllers.owners import Owners
from railnet.controllers.rails_apart_events import RailsApartEvents
from railnet.controllers.shared_pod_watch import alone, both, each
from railnet.controllers.sticky_addresses import StickyAddresses
from railnet.controllers.training_pod import training_pod
from railnet.controllers.work_queue import WorkQueue
from railnet.objects.pod_name import PodName
from railnet.vf.permitted_networks import StickyIpam

_log = logging.getLogger(__name__)
_DEFAULTS = Configuration()
_LAST_EVENTS_SECONDS = 1.0
_MOST_EVENTS = 4096  # that wait: a new leader may find a thousand gangs that wait
_LOOK_SECONDS = 0.5


def _namespace(message: Message) -> str | None:
    """Return the namespace of an event: so a tenant about whom there is much to say costs no other tenant an event."""
    return message.about.namespace if isinstance(message, Event) else None


class Controller(NamedTuple):
    """A queue of keys, what is done with each, and by how many threads at a time."""

    title: str
    queue: WorkQueue[Any]
    reconcile: Callable[[Any], float | None]
    workers: int


class Leader:
    """Everything that one leader knows and does, until it ends; the next leader begins with nothing."""

    def __init__(
        self,
        api: StreamingApiServer,
        ended: threading.Event,
        configuration: Configuration = _DEFAULTS,
        namespace: str = "railnet",
        *,
        cleans_up: bool = False,
        places_gangs: bool = False,
    ) -> None:
        """Work through an API server until `ended` is set.

        Args:
            api: the API server.
            ended: set to end the work.
            configuration: the configuration of the nodes.
            namespace: the controllers' own.
            cleans_up: delete what finished jobs leave.
            places_gangs: place gangs whole, and remove the gates of their pods.
        """
        self._api, self._ended = api, ended
        self._cleans_up, self._places_gangs = cleans_up, places_gangs
        self._configuration, self._namespace = configuration, namespace
        self._sticky: StickyAddresses | None = None
        self._gangs: GangPlacement | None = None
        self._outbox = Outbox(api.send, room=_MOST_EVENTS, sender=_namespace)
        self._events = JobEvents(self._outbox.put)
        self._pods = JobPods()
        self._owners = Owners(api)
        self._informers: Mapping[str, Informer[Any]] = {}
        self._controllers: Sequence[Controller] = ()
        self._compose()

    def run(self) -> None:
        """List, watch and reconcile; return when `ended` is set."""
        try:
            for kind, informer in self._informers.items():
                threading.Thread(target=partial(informer.run, self._ended), name=kind, daemon=True).start()
            if self._all_is_listed():
                for controller in self._controllers:
                    worker.start(controller.queue, controller.reconcile, controller.workers, controller.title)
                self._warn_of_an_old_version()
                self._ended.wait()
        finally:
            for controller in self._controllers:
                controller.queue.close()
            self._outbox.close(_LAST_EVENTS_SECONDS)

    def reasons(self) -> Iterator[str]:
        """Yield why not everything is reconciled."""
        yield from (informer.trouble for informer in self._informers.values() if informer.trouble)
        if self._sticky is not None and self._sticky.trouble:
            yield self._sticky.trouble

    def objects(self) -> Mapping[str, int]:
        """Return how many objects of each kind are known."""
        return {kind: len(informer.all()) for kind, informer in self._informers.items()}

    def waiting(self) -> Mapping[str, int]:
        """Return how many keys of each controller wait, or are being looked at."""
        return {controller.title: len(controller.queue) for controller in self._controllers}

    def lost(self) -> int:
        """Return how many events were given up."""
        return self._outbox.lost

    def left_out(self) -> int:
        """Return how many writes were left out, because the same content had been written again and again."""
        return self._names.left_out + (0 if self._sticky is None else self._sticky.left_out)

    def gangs(self) -> Mapping[str, float]:
        """Return the figures of the gangs; empty if none are placed."""
        return {} if self._gangs is None else self._gangs.figures()

    def _compose(self) -> None:
        self._names = names = Net1Services(
            self._api, self._pods, self._owners, self._events, self._configuration.networks
        )
        pods = Informer(self._api, Collection("v1", "pods"), alone(training_pod), self._pods.change)
        apart = RailsApartEvents(self._api, self._pods, self._owners, self._events)
        self._controllers = [
            Controller("names on net1", names.queue, names.reconcile, 4),
            Controller("rails of jobs", apart.queue, apart.reconcile, 1),
            *self._sticky_addresses(),
        ]
        services, slices = names.informers
        self._informers = {"pods": pods, "services": services, "endpointslices": slices}
        if self._cleans_up:
            self._add_clean_up()
        if self._places_gangs:
            self._add_gangs()

    def _add_gangs(self) -> None:
        self._gangs = gangs = GangPlacement(self._api, self._events, self._address)
        pods = Informer(
            self._api,
            Collection("v1", "pods"),
            both(training_pod, gangs.reduce),
            each(self._pods.change, gangs.pod_changed),
        )
        self._controllers = [
            *self._controllers,
            Controller("placement of gangs", gangs.queue, gangs.reconcile, 1),
            Controller("patches and evictions of gangs' pods", gangs.writes.queue, gangs.writes.reconcile, 32),
            Controller("PodGroups of gangs", gangs.groups.queue, gangs.groups.reconcile, 4),
            Controller("owners of gangs' pods", gangs.roots.queue, gangs.roots.reconcile, 4),
        ]
        self._informers = {**self._informers, "pods": pods, **gangs.informers}

    def _address(self, pod: PodName) -> str | None:
        return None if self._sticky is None else self._sticky.due(pod)

    def _add_clean_up(self) -> None:
        servers = CleanUp(self._api, self._pods, self._owners, self._events)
        namespaces = NamespaceCleanUp(self._api, self._pods, self._events)
        self._controllers = [
            *self._controllers,
            Controller("clean-up of parameter servers", servers.queue, servers.reconcile, 2),
            Controller("clean-up of namespaces", namespaces.queue, namespaces.reconcile, 1),
        ]
        self._informers = {**self._informers, "jobs": servers.informer, "namespaces": namespaces.informer}

    def _sticky_addresses(self) -> Iterator[Controller]:
        """Yield nothing if no network has addresses that stay with a rank: nothing is then asked of the API server for them."""
        networks = self._configuration.networks
        if not any(isinstance(network.ipam, StickyIpam) for network in networks):
            return
        self._sticky = sticky = StickyAddresses(
            api=self._api,
            namespace=self._namespace,
            networks=networks,
            resources=self._configuration.resources,
            pods=self._pods,
            owners=self._owners,
            events=self._events,
            gangs=self._places_gangs,
        )
        yield Controller("sticky addresses", sticky.queue, sticky.reconcile, 1)
        yield Controller("annotation of sticky addresses", sticky.patches, sticky.annotate, 8)

    def _warn_of_an_old_version(self) -> None:
        """Log that Kubernetes is too old. The leader goes on: some of its work may succeed all the same."""
        try:
            version = said(self._api.send(get(ServerVersion())))
        except RequestFailed as error:
            _log.warning("%s; Railnet does not know whether this Kubernetes is too old", error)
            return
        if version is not None and (warning := too_old(version)):
            _log.warning("%s", warning)

    def _all_is_listed(self) -> bool:
        """Wait until all objects are known: a job with unknown pods would lose its names. Return False if the work ends before."""
        for informer in self._informers.values():
            while not informer.listed.wait(_LOOK_SECONDS):
                if self._ended.is_set():
                    return False
        return not self._ended.is_set()
