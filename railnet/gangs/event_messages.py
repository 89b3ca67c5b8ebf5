"""Writes the texts of events about gangs: at most a kilobyte each, however large the gang and the cluster are (koordinator#3191)."""

from collections import Counter
from collections.abc import Mapping, Sequence

from railnet.gangs.placement.gang import Domain, Gang, GangKey, LostSeat, Reason, Shortfall
from railnet.gangs.placement.pod_shape import Shape
from railnet.gangs.placement.preemption import Preemption
from railnet.jobs.eviction_tolerance import Refusal
from railnet.jobs.gang.overview import STAYS
from railnet.objects.owner_reference import OwnerReference
from railnet.objects.resource_amounts import amount_text

_MOST_NAME, _MOST_RESOURCES, _MOST_GANGS, _MOST_DOMAINS, _MOST_TEXT, _MOST_SEATS = 63, 4, 5, 5, 300, 2
_HOUSEKEEPING = ("cpu", "memory", "pods", "ephemeral-storage")  # of a shape, devices are what its author looks for

_REMEDIES = {
    Reason.UNKNOWN_KEY: "label the nodes, or correct the constraint",
    Reason.NO_NODE: "change them, or add nodes",
    Reason.SPLIT: "delete the job, so that all members are placed again",
    Reason.TOO_LARGE: "make the gang smaller, or add nodes",
}


def waits(gang: Gang, shortfall: Shortfall, pods: int = 0) -> str:
    """Say why a gang has no place: members, domains tried, the best one and what it lacks, and what will change it.

    `pods` is how many pods its job makes; 0 if that is not known.
    """
    few = f"its job makes {pods} pods, so min-available should be {pods} at most" if 0 < pods < gang.needed else ""
    return "; ".join(filter(None, (_need(gang, shortfall), few, _why(shortfall), _then(gang, shortfall))))


def placed(
    domains: Mapping[Domain, int], missing: int, attempt: int, minutes: float, ignored: Sequence[str] = ()
) -> str:
    """Say where a gang is: how many members are in each domain; how many do not exist yet; and which preferred labels no node has."""
    members = sum(domains.values())
    where = domain_text(next(iter(domains))) if len(domains) == 1 else f"in {_each(domains)}"
    tries = "" if attempt == 1 else f"; this is attempt {attempt}"
    rest = f"; room for {_number(missing, 'member')} not created yet is kept for {minutes:g} minutes" if missing else ""
    out = (
        f"; no node has the preferred label {' or '.join(ignored[:_MOST_RESOURCES])}, which was left out"
        if ignored
        else ""
    )
    return f"{_number(members, 'member')} placed {where}{tries}{rest}{out}"


def seats_lost(seats: Sequence[LostSeat]) -> str:
    """Say which members lost the node that they were given, why, and where there is room for them instead."""
    lost = "; ".join(map(_lost, seats[:_MOST_SEATS]))
    more = len(seats) - _MOST_SEATS
    return f"{_number(len(seats), 'member')} lost the node before the scheduler used it: {lost}{f'; and {more} more' if more > 0 else ''}"


def _lost(seat: LostSeat) -> str:
    instead = (
        f"room is kept for it on {seat.now:.{_MOST_NAME}}, and the scheduler may choose another node of the domain"
        if seat.now
        else "its domain has no other room for it now"
    )
    return f"pod {seat.member:.{_MOST_NAME}} was given {seat.node:.{_MOST_NAME}}, which {seat.reason}; {instead}"


def absent(seen: int, needed: int, job_size: int, root: OwnerReference | None) -> str:
    """Say that a gang waits for members that do not exist.

    Args:
        seen: how many exist.
        needed: how many must exist before any starts.
        job_size: how many pods the root makes; 0 if that is not known.
        root: the object that makes them; None if it is not known, or if several make them.
    """
    maker = "the job" if root is None else f"{root.kind} {root.name:.{_MOST_NAME}}"
    if 0 < job_size < needed:
        why = f"{maker} makes {_number(job_size, 'pod')}: set min-available to {job_size} at most, or create the others"
    else:
        why = f"see the events of {maker}: a quota or a webhook may refuse the others"
    stages = "" if job_size or root is None else _in_stages(root)
    return f"{_exist(seen, needed)}, and none starts before all of them do; no room is kept meanwhile; {why}{stages}"


def closed(seen: int, needed: int, minutes: float) -> str:
    """Say that a gang's gates stay closed for a while, because members did not come when they were open."""
    return (
        f"{_exist(seen, needed)}; the gates were opened before all of them did, and the others did not come in time; "
        f"the gates are opened again after {minutes:g} minutes, or when all members exist"
    )


def incomplete(seen: int, missing: int, minutes: float, why: str = "") -> str:
    """Say that members never came; `why` says why those that have begun stay nevertheless."""
    stays = f"; those that have begun stay, because {why}" if why else ""
    return (
        f"{missing} of {seen + missing} members have not come within {minutes:g} minutes, so the room that was kept for them is given back{stays}; "
        f"create them, or set min-available to {seen}"
    )


def lapsed(seen: int, missing: int, started: int, minutes: float) -> str:
    """Say why a gang is evicted whose gates were opened before all members existed."""
    return (
        f"{missing} of {seen + missing} members were not created in the time in which room was kept for them, so the {_number(started, 'member')} that had "
        f"begun are evicted, and wait behind the gate for {minutes:g} minutes, or until all exist"
    )


def room_taken(missing: int, domains: Sequence[Domain], minutes: float) -> str:
    """Say that members to come have no room any more."""
    return (
        f"{_number(missing, 'member')} not created yet {'have' if missing > 1 else 'has'} no room {_domains(domains)}, where the others are: pods of no gang "
        f"took it, which no gate keeps out, or a node is gone; it is kept again when it is free, for {minutes:g} minutes in all"
    )


def evicted(pods: int, started: int, domains: Sequence[Domain]) -> str:
    """Say why a gang is evicted after it was placed: so many of its pods have no node, of those that have begun."""
    return (
        f"{pods} of {_number(started, 'member')} had no node {_domains(domains)} for 30 s, although there was room: another pod took it, or a node does not fit "
        f"for a reason that only the scheduler knows; {_all_evicted(started)} and placed elsewhere"
    )


def placed_in_part(pods: int, started: int, domains: Sequence[Domain]) -> str:
    """Say why a gang is evicted of which a part has its place."""
    return (
        f"{_number(pods, 'member')} had no room for 30 s {_domains(domains)}, where {started} others are, because another pod took it while the gang was "
        f"placed; {'these are' if started > 1 else 'this one is'} evicted, so that all are placed together"
    )


def reunited(domains: Mapping[Domain, int], started: int) -> str:
    """Say why a gang is evicted of which members are in several domains."""
    return f"{apart(domains)}; {_all_evicted(started)}, so that all are placed together"


def apart(domains: Mapping[Domain, int]) -> str:
    """Say how many members are in each of several domains, a clause."""
    return f"members are in {_each(domains)}, and the gang requires one domain"


def without_nodes(domains: Sequence[Domain]) -> str:
    """Say that members have no nodes, a clause."""
    return f"{STAYS} {_domains(domains)}"


def stays(trouble: str, why: str) -> str:
    """Say why a gang is left where it is, although something is wrong with it."""
    return (
        f"{trouble}, and the gang is not placed elsewhere, because {why}; see the pods' events, and delete the "
        "job to have it tried again"
    )


def not_evicted(trouble: str, refusal: Refusal) -> str:
    """Say why a gang with which something is wrong is left where it is, because its eviction would cost a job."""
    return f"{trouble}, and the gang is not evicted, because {refusal.why}; {refusal.remedy}"


def spared(gangs: Sequence[GangKey]) -> str:
    """Say that gangs do not give way, although their priority is lower; empty for none."""
    if not gangs:
        return ""
    return f"; {_number(len(gangs), 'gang')} of lower priority, such as {_name(gangs[0])}, cannot be evicted without a loss of the job"


def completed(refusal: Refusal) -> str:
    """Say that an eviction has made a pod complete, for which reason there are no more."""
    return f"{refusal.why}; the gang is not evicted any more: {refusal.remedy}"


def job_pause(seconds: float) -> str:
    """Say what the Job controller does after an eviction."""
    return (
        f"; its Job makes new pods after a pause of {seconds:g} s, and counts a pod as complete whose program ends with 0 on SIGTERM"
        if seconds
        else ""
    )


def waits_for(preemption: Preemption) -> str:
    """Say that others leave for a gang."""
    gangs = _gangs(preemption.victims)
    leaving = f"{gangs} of lower priority to leave" if gangs else "pods that leave already"
    return f"it will be placed {domain_text(preemption.domain)}, and waits for {leaving}"


def preempted(by: GangKey, priority: int) -> str:
    """Say why a gang is evicted for another one."""
    return f"evicted whole, so that gang {_name(by)} of priority {priority} gets its place; it waits for another place"


def eviction_refused(pod: str, why: str) -> str:
    """Say that a pod cannot be evicted now."""
    return f"pod {pod:.{_MOST_NAME}} is not evicted for now, and it is tried again: {why:.{_MOST_TEXT}}"


def patch_refused(pod: str, why: str) -> str:
    """Say that the API server does not let a pod go."""
    return (
        f"pod {pod:.{_MOST_NAME}} stays behind its gate, because the API server refuses the patch that admits it: {why:.{_MOST_TEXT}}; change "
        "the policy or the quota that refuses it"
    )


def write_refused(pod: str, why: str) -> str:
    """Say that the API server does not let the placement or the nomination of a pod be changed."""
    return (
        f"pod {pod:.{_MOST_NAME}} is not changed for now, because the API server refuses the patch of its placement: {why:.{_MOST_TEXT}}; change "
        "the policy that refuses it"
    )


def _exist(seen: int, needed: int) -> str:
    return f"{seen} of the {_number(needed, 'member')} that start together exist"


def _in_stages(root: OwnerReference) -> str:
    return f"; if {root.kind} creates pods only when others run, set min-available to how many it creates first"


def _all_evicted(started: int) -> str:
    return f"all {started} are evicted" if started > 1 else "it is evicted"


def _each(domains: Mapping[Domain, int]) -> str:
    """Return how many members are in each of several domains."""
    most = Counter(dict(sorted(domains.items()))).most_common(_MOST_DOMAINS)
    each = ", ".join(f"{count} {domain_text(domain)}" for domain, count in most)
    others = len(domains) - len(most)
    return f"{len(domains)} domains: {each}" + (f" and {_number(others, 'more domain')}" if others else "")


def _domains(domains: Sequence[Domain]) -> str:
    more = f" and {_number(len(domains) - 1, 'more domain')}" if len(domains) > 1 else ""
    return domain_text(domains[0]) + more


def domain_text(domain: Domain) -> str:
    """Return a domain in words."""
    if not domain:
        return "on any nodes"
    return "in " + " and ".join(f"{key}={value:.{_MOST_NAME}}" for key, value in domain)


def _need(gang: Gang, shortfall: Shortfall) -> str:
    shapes = Counter(member.shape for member in gang.members)
    asks = ", ".join(f"{count}x{_asks(shape)}" for shape, count in shapes.most_common(2))
    more = "" if len(shapes) <= 2 else f" and {_number(len(shapes) - 2, 'more shape')}"  # noqa: PLR2004 - of two there is nothing more
    preferred = [key for key in gang.constraint.preferred if key not in shortfall.ignored]
    keys = " and ".join((*gang.constraint.required, *preferred[:1])[:_MOST_RESOURCES])
    return f"{shortfall.seen}/{shortfall.needed} members seen, need {asks}{more}" + (f" in one {keys}" if keys else "")


def _asks(shape: Shape) -> str:
    devices = [(resource, amount) for resource, amount in shape.requests if resource not in _HOUSEKEEPING]
    shown = devices or [request for request in shape.requests if request[0] in ("cpu", "memory")]
    return "{" + ", ".join(f"{resource}: {amount_text(resource, amount)}" for resource, amount in shown[:3]) + "}"


def _why(shortfall: Shortfall) -> str:
    if shortfall.reason is Reason.UNKNOWN_KEY:
        return f"no node has the label {' or '.join(shortfall.keys[:_MOST_RESOURCES])}"
    if shortfall.reason is Reason.HELD and shortfall.held_for is not None:
        return f"the room is held for gang {_name(shortfall.held_for)}, which has waited for longer"
    if shortfall.reason in (Reason.NO_NODE, Reason.SPLIT) or not shortfall.tried:
        return shortfall.reason
    large = f"; it is {shortfall.reason}" if shortfall.reason is Reason.TOO_LARGE else ""
    return f"{_number(shortfall.tried, 'domain')} tried, best {_best(shortfall.best)} has room for {shortfall.room}{_lacks(shortfall.lacks)}{large}"


def _then(gang: Gang, shortfall: Shortfall) -> str:
    if shortfall.reason in _REMEDIES:
        return _REMEDIES[shortfall.reason]
    cooling = f", without {_number(len(gang.excluded), 'domain')} that failed before" if gang.excluded else ""
    unseen = (
        f"; no gang of lower priority is evicted for it, because its pods have {' and '.join(shortfall.unseen)}, which Railnet cannot check"
        if shortfall.unseen
        else ""
    )
    return f"retry on next capacity change{cooling}{unseen}"


def _best(domain: Domain) -> str:
    return ",".join(f"{value:.{_MOST_NAME}}" for _, value in domain) or "the cluster"


def _lacks(amounts: Sequence[tuple[str, int]]) -> str:
    short = ", ".join(f"{resource} {amount_text(resource, amount)}" for resource, amount in amounts[:_MOST_RESOURCES])
    return f" (short: {short})" if short else ""


def _gangs(keys: Sequence[GangKey]) -> str:
    if not keys:
        return ""
    names = ", ".join(map(_name, keys[:_MOST_GANGS]))
    more = len(keys) - _MOST_GANGS
    return f"{_number(len(keys), 'gang')} ({names}{f' and {more} more' if more > 0 else ''})"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _name(key: GangKey) -> str:
    return f"{key[0]:.{_MOST_NAME}}/{key[1]:.{_MOST_NAME}}"
