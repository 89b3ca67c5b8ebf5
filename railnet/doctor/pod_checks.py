"""Checks why a pod waits, or has no net1, for `railnet doctor --pod`. Pure.

A pod is at one stage of its life, and each stage has its own checks: without a request, without a node, on a node, running, ended.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from railnet.admission.decision import Additions, decide
from railnet.admission.review_configuration import Namespace, Policy, switch
from railnet.doctor import dra_checks
from railnet.doctor.finding_kinds import SEVERITIES, Finding
from railnet.doctor.job_rails import of_job
from railnet.doctor.pod_facts import JsonObject, PodFacts
from railnet.errors import Misconfigured, NotPermitted
from railnet.fabric.rails_condition import TAINT, TYPE
from railnet.gangs.slice_devices import SliceDevices, with_devices
from railnet.jobs.gang.engine import named_pod_group
from railnet.jobs.gang.other_placement import waits_for_its_group
from railnet.jobs.gang.overview import gang_part, gang_wait
from railnet.jobs.gang.recogniser import GATE
from railnet.jobs.hiding_settings import hiding
from railnet.jobs.pod_progress import Stage, progress
from railnet.objects.conditions import condition, is_ready
from railnet.objects.network_status import ANNOTATION, rails_of_pod
from railnet.objects.node_taints import has_taint
from railnet.objects.pod import Pod, parse
from railnet.objects.resource_amounts import Amounts, allocatable, requested

_REFUSED = frozenset({"UnexpectedAdmissionError", "TopologyAffinityError"})  # kubelet's device and topology managers
_ATTACH, _SANDBOX = "RailnetAttachFailed", "FailedCreatePodSandBox"
_UNALLOCATED = "cannot allocate all claims"  # the scheduler's words (plugins/dynamicresources)


def findings(facts: PodFacts) -> tuple[Finding, ...]:
    """Return what all checks find, errors first."""
    all_findings = [
        *_of_stage(facts),
        *(Finding("could-not-be-read", failure.where, failure.why) for failure in facts.unread),
    ]
    return tuple(sorted(all_findings, key=lambda finding: SEVERITIES.index(finding.kind.severity)))


def _of_stage(facts: PodFacts) -> Iterator[Finding]:
    stage, why = progress(facts.pod)
    if stage is Stage.FAILED and _status(facts).get("reason") in _REFUSED:
        yield _of_pod(facts, "device-refused", why)
    elif stage in (Stage.SUCCEEDED, Stage.FAILED):
        yield _of_pod(facts, "pod-ended", f"{stage}{': ' if why else ''}{why}")
    elif stage is Stage.UNSCHEDULED and (unmade := list(dra_checks.unmade_claims(facts.claims))):
        yield _of_pod(facts, "claim-missing", "; ".join(unmade))
    elif not _wanted(facts, SliceDevices()):
        yield from _without_request(facts)
    else:
        if _spec(facts).get("hostNetwork"):
            yield _of_pod(facts, "pod-on-host-network", "spec.hostNetwork is true")
        yield from _hidden(facts)
        if stage is Stage.UNSCHEDULED:
            yield from _without_node(facts, why)
        else:
            yield from _on_node(facts, stage, why)


def _hidden(facts: PodFacts) -> Iterator[Finding]:
    """Say which of its own settings keep the pod's programs from its VFs."""
    pod = parse(facts.pod)
    entries = {claim.named.entry for claim in facts.claims if dra_checks.asked_by_claims([claim], facts.rails)}
    asks = [
        container
        for container in pod.containers
        if not (facts.rails.isdisjoint(container.resources) and entries.isdisjoint(container.claims))
    ]
    clauses = dict.fromkeys(
        clause for container in asks for clause in hiding(pod, container, facts.rails, net1=not pod.host_network)
    )
    if clauses:
        yield _of_pod(facts, "pod-hides-its-rail", "; ".join(clauses))


def _without_request(facts: PodFacts) -> Iterator[Finding]:
    """Say why no review has added the request: what a review decides about the pod as it is now."""
    try:
        decision = decide(parse(facts.pod), _namespace(facts), Policy(resources=tuple(sorted(facts.rails))))
    except (Misconfigured, NotPermitted) as error:
        yield _of_pod(facts, "pod-not-reviewed", f"a review would refuse the pod: {error}")
        return
    if not isinstance(decision, Additions) or not decision.vfs:
        why = decision.reason if not isinstance(decision, Additions) else f"{decision.member}: {decision.reason}"
        yield _of_pod(facts, "pod-without-request", why)
        return
    webhook = {None: "could not be read", False: "does not exist", True: "exists"}[facts.webhook]
    seen = f"a review would add {decision.vfs} {decision.resource} to container {decision.container}; the webhook railnet-admission {webhook}"
    yield _of_pod(facts, "pod-not-reviewed", seen)


def _without_node(facts: PodFacts, scheduler: str) -> Iterator[Finding]:
    gates = [gate.get("name") for gate in _spec(facts).get("schedulingGates") or ()]
    if GATE in gates or waits_for_its_group(parse(facts.pod), _spec(facts)):
        yield _of_pod(facts, "pod-gated", _gang_words(facts))
    elif gates:
        yield _of_pod(facts, "pod-unschedulable", f"scheduling gates of other programs: {', '.join(map(str, gates))}")
    else:
        rail_findings = list(_missing_rails(facts, scheduler))
        yield from rail_findings or [
            _of_pod(facts, "pod-unschedulable", scheduler or "the scheduler has said nothing yet")
        ]


def _missing_rails(facts: PodFacts, scheduler: str) -> Iterator[Finding]:
    """Say what of rails keeps the pod from each node; nothing if rails are not the reason."""
    devices = dra_checks.devices_of(facts.slices)
    wanted = _wanted(facts, devices)
    sick = list(dra_checks.tainted_nodes(devices, (_name(node) for node in facts.nodes or ()), wanted))
    tainted_devices = (
        [Finding("devices-tainted", dra_checks.some(sick), f"tainted devices; {scheduler}")] if sick else []
    )
    if facts.nodes is not None:
        has = {_name(node): with_devices(allocatable(node), devices.of(_name(node)).now) for node in facts.nodes}
        large = [node for node in facts.nodes if _is_enough(has[_name(node)], wanted)]
        if not large:
            yield from tainted_devices or [_of_pod(facts, "no-node-with-rails", "; ".join(_most(has, wanted)))]
            return
        tainted = [node for node in large if has_taint(node, TAINT) and not _tolerates(facts)]
        if tainted:
            yield Finding(
                "node-with-rail-taint",
                dra_checks.some([_name(node) for node in tainted]),
                f"taint {TAINT}; {_condition_of(tainted[0])}",
            )
    of_claims = _UNALLOCATED in scheduler and dra_checks.asks_for_nothing_else(facts.claims, facts.rails)
    if of_claims or any(f"Insufficient {resource}" in scheduler for resource in wanted):
        yield _of_pod(facts, "rails-in-use", scheduler)
        yield from tainted_devices


def _on_node(facts: PodFacts, stage: Stage, why: str) -> Iterator[Finding]:
    node = str(_spec(facts)["nodeName"])
    yield from _starting(facts, node, why) if stage is Stage.STARTING else _running(facts)
    if why:
        yield _of_pod(facts, "container-waits", why)
    if facts.node is not None and _has_inactive_rail(facts.node):
        yield Finding("rail-not-active", node, _condition_of(facts.node))


def _starting(facts: PodFacts, node: str, why: str) -> Iterator[Finding]:
    # An event outlives its cause by an hour. A pod with an address, or with a container that waits for something else, has its network.
    refused = None if why or _status(facts).get("podIP") else _refused(facts)
    served = facts.daemons is None or any(map(is_ready, facts.daemons))
    unready = list(dra_checks.unready_claims(facts.claims, str(facts.pod["metadata"]["uid"])))
    if unready:
        yield _of_pod(facts, "claim-not-reserved", "; ".join(unready))
    if refused is not None:
        yield _of_pod(facts, "sandbox-refused", refused)
    if not served:
        yield Finding("node-pod-not-ready", node, _daemon_words(facts.daemons or ()))
    if served and refused is None and not why and not unready:
        yield _of_pod(facts, "pod-starts", f"on {node} since {_status(facts).get('startTime') or 'now'}")


def _running(facts: PodFacts) -> Iterator[Finding]:
    rails = _rails_of(facts.pod)
    if rails:
        job = [_of_pod(facts, name, seen) for name, seen in of_job(facts.pod, facts.neighbours or (), facts.reach)]
        yield from job or [_of_pod(facts, "pod-has-net1", "; ".join(rails))]
    elif not _spec(facts).get("hostNetwork"):
        yield _of_pod(facts, "pod-without-net1", f"the annotation {ANNOTATION} names no network of Railnet")


def _of_pod(facts: PodFacts, name: str, seen: str) -> Finding:
    metadata = facts.pod["metadata"]
    return Finding(name, f"{metadata['namespace']}/{metadata['name']}", " ".join(seen.split()))


def _spec(facts: PodFacts) -> Mapping[str, Any]:
    return facts.pod.get("spec") or {}


def _status(facts: PodFacts) -> Mapping[str, Any]:
    return facts.pod.get("status") or {}


def _requested(facts: PodFacts) -> dict[str, int]:
    return {resource: amount for resource, amount in requested(_spec(facts)).items() if resource in facts.rails}


def _wanted(facts: PodFacts, devices: SliceDevices) -> dict[str, int]:
    """Return what the pod asks for of rails: by resources, and by claims that it names."""
    by_claims = dra_checks.asked_by_claims(facts.claims, devices.resources or facts.rails)
    return dict(Counter(_requested(facts)) + Counter(by_claims))


def _namespace(facts: PodFacts) -> Namespace:
    name = str(facts.pod["metadata"]["namespace"])
    labels = ((facts.namespace or {}).get("metadata") or {}).get("labels") or {}
    return Namespace(name, switch(labels, "namespace"))


def _gang_words(facts: PodFacts) -> str:
    """Return what the controllers last said of the pod's gang."""
    pod: Pod = parse(facts.pod)
    part = gang_part(pod, facts.pod["metadata"], pod.labels.get("railnet.io/job", ""))
    told = [wait for wait in map(gang_wait, facts.gang_events or ()) if wait is not None]
    of_gang = [wait for wait in told if part is not None and {wait.name, wait.uid} & part.known_as]
    if not of_gang:
        held = f"PodGroup {group}" if (group := named_pod_group(_spec(facts))) else f"gate {GATE}"
        return f"{held}; no event says what the gang waits for"
    return max(of_gang, key=lambda wait: wait.last).said


def _name(node: JsonObject) -> str:
    return str(node["metadata"]["name"])


def _is_enough(has: Amounts, wanted: Amounts) -> bool:
    return all(has.get(resource, 0) >= amount for resource, amount in wanted.items())


def _most(has: Mapping[str, Amounts], wanted: Amounts) -> Iterator[str]:
    for resource, amount in wanted.items():
        most, name = max(((of_node.get(resource, 0), name) for name, of_node in has.items()), default=(0, ""))
        best = f"the most that a node has is {most} ({name})" if most else "no node has any"
        yield f"{resource}: {amount} requested; {best}"


def _tolerates(facts: PodFacts) -> bool:
    """Return whether the pod tolerates the taint (core/v1 Toleration: no key, with Exists, is every key; no effect is every effect)."""
    return any(
        toleration.get("key", "") in (("", TAINT) if toleration.get("operator") == "Exists" else (TAINT,))
        and toleration.get("effect", "") in ("", "NoSchedule")
        for toleration in _spec(facts).get("tolerations") or ()
    )


def _has_inactive_rail(node: JsonObject) -> bool:
    rails = condition(node, TYPE)
    return rails is not None and rails.status == "False"


def _condition_of(node: JsonObject) -> str:
    rails = condition(node, TYPE)
    return f"no condition {TYPE}" if rails is None else f"{TYPE} is {rails.status}: {rails.message or rails.reason}"


def _rails_of(pod: JsonObject) -> list[str]:
    """Return the pod's rails in words, as the daemon has written them; none if the annotation is absent or not readable."""
    return [
        f"{rail.interface} {', '.join(rail.addresses)} on {rail.vf or 'an unknown VF'}, "
        f"rail {'not said' if rail.rail is None else rail.rail}"
        for rail in rails_of_pod(pod)
    ]


def _refused(facts: PodFacts) -> str | None:
    """Return why the pod's network is not made: the last event of ours, which has a count, else kubelet's."""
    for reason in (_ATTACH, _SANDBOX):
        messages = [str(event.get("message")) for event in facts.events or () if event.get("reason") == reason]
        if messages:
            return messages[-1]
    return None


def _daemon_words(daemons: Sequence[JsonObject]) -> str:
    if not daemons:
        return "no pod of Railnet's DaemonSet is on this node"
    stage, why = progress(daemons[0])
    return f"pod railnet/{daemons[0]['metadata']['name']} is {stage} and not ready{': ' if why else ''}{why}"
