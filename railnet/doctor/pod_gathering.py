"""Asks the API server for what `railnet doctor --pod` looks at. It reads, and changes nothing."""

from collections.abc import Iterator, Mapping
from typing import Any

from railnet.apiserver.client import ApiServer
from railnet.apiserver.rail_reach import CONFIG_MAP
from railnet.apiserver.request import ApiObject, Collection, JsonObject, get
from railnet.doctor.apiserver_reads import Asking
from railnet.doctor.dra_checks import ClaimOfPod
from railnet.doctor.facts import Unread
from railnet.doctor.pod_facts import PodFacts
from railnet.fabric.published_reach import UNPUBLISHED, PublishedReach, Reach, parse
from railnet.gangs.slice_devices import pool_slice
from railnet.jobs.gang.overview import REFUSED, WAITING
from railnet.kubelet.dra_driver_name import DRIVER
from railnet.objects.metadata_times import created_text
from railnet.objects.network_status import rails_of_pod
from railnet.objects.pod_claims import pod_claims

_OURS = "railnet"  # the namespace of daemonset/, and the name of its pods' label
_DRA = "resource.k8s.io/v1"
SLICES = Collection(_DRA, "resourceslices", fields=f"spec.driver={DRIVER}")
_WEBHOOK = ApiObject("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", "railnet-admission")


def gather(
    api: ApiServer, namespace: str, name: str, rails: frozenset[str], validated: Reach | None = None
) -> PodFacts:
    """Return the facts about a pod. Other objects that the user may not read are left out, and named.

    `validated` is what a report says of which rails reach each other; without one it is asked what is published.

    Raises:
        RequestFailed: the pod itself cannot be read.
        ValueError: the name is no name of a pod, or the namespace none of a namespace.
    """
    pod = api.send(get(ApiObject("v1", "pods", name, namespace)))
    asking = Asking(api)
    webhook = asking.one(_WEBHOOK)
    about = f"involvedObject.kind=Pod,involvedObject.name={name},involvedObject.uid={pod['metadata']['uid']}"
    events = asking.all(Collection("v1", "events", namespace, "", about))
    node = (pod.get("spec") or {}).get("nodeName")
    spec = pod.get("spec") or {}
    gated = bool(spec.get("schedulingGates") or spec.get("schedulingGroup"))
    has_rails = bool(rails_of_pod(pod))
    published = _published(asking) if has_rails and validated is None else UNPUBLISHED
    illegible = (Unread(str(CONFIG_MAP), published.trouble),) if published.trouble else ()
    daemons = Collection("v1", "pods", _OURS, f"app.kubernetes.io/name={_OURS}", f"spec.nodeName={node}")
    return PodFacts(
        pod=pod,
        rails=rails,
        namespace=asking.one(ApiObject("v1", "namespaces", namespace)),
        webhook=None if asking.has_failed(_WEBHOOK) else webhook is not None,
        events=None if events is None else tuple(sorted(events, key=_time)),
        gang_events=_gang_events(asking, namespace) if gated else None,
        nodes=None if node else asking.all(Collection("v1", "nodes")),
        node=asking.one(ApiObject("v1", "nodes", node)) if node else None,
        daemons=asking.all(daemons) if node else None,
        neighbours=asking.all(Collection("v1", "pods", namespace)) if has_rails else None,
        reach=published.reach if validated is None else validated,
        claims=tuple(_claims(asking, pod, namespace)),
        slices=() if node else asking.each(SLICES, pool_slice, may_be_absent=True) or (),
        unread=(*asking.unread, *illegible),
    )


def _published(asking: Asking) -> PublishedReach:
    document = asking.one(CONFIG_MAP)
    return UNPUBLISHED if document is None else parse(document)


def _claims(asking: Asking, pod: JsonObject, namespace: str) -> Iterator[ClaimOfPod]:
    """Yield the claims that a pod names; one that cannot be read is named among what was not answered."""
    for named in pod_claims(pod):
        about = ApiObject(_DRA, "resourceclaims", named.claim, namespace) if named.claim else None
        document = None if about is None else asking.one(about)
        if about is None or not asking.has_failed(about):
            yield ClaimOfPod(named, document)


def _gang_events(asking: Asking, namespace: str) -> tuple[JsonObject, ...] | None:
    """Return the events that say why gangs of a namespace have no place; a field selector has one reason."""
    collections = (Collection("v1", "events", namespace, "", f"reason={reason}") for reason in (WAITING, REFUSED))
    all_events = [events for collection in collections if (events := asking.all(collection)) is not None]
    return tuple(event for events in all_events for event in events) if all_events else None


def _time(event: Mapping[str, Any]) -> str:
    """Return when an event was last seen, as text that sorts: kubelet's have `lastTimestamp`, the scheduler's `eventTime`."""
    return str(event.get("lastTimestamp") or event.get("eventTime") or created_text(event["metadata"]))
