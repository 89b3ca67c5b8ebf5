"""The life of a gang as a table: for a state and an event the next state and the action, with its reason. Pure.

A state is derived from the pods and from what a leader remembers (`railnet.gangs.leader_memory`). Events are recognised in `railnet.gangs.planning`,
and actions are done in `railnet.gangs.actions`. Each pair is either in `LIFE_CYCLE` or in `IMPOSSIBLE`; a test proves it. If one that is impossible
happens, it is logged, and the gang stays as it is in this pass: one gang must not stop all others.
"""

from collections.abc import Collection, Iterator
from enum import Enum
from typing import NamedTuple


class GangState(Enum):
    """How far a gang is. A gang that is refused waits: the next look at its pods decides anew."""

    WAITING = "no member has begun: they wait behind the gate, or do not exist"
    COOLING = "as WAITING, and domains in which it failed are left out for a while"
    CLOSED = "as WAITING, and for a while the gates open only when all members exist: once they did not come"
    PLACED = "members have begun: they have a place or a node"
    INCOMPLETE = "as PLACED, and room is kept for members that do not exist yet"
    LAPSED = "as PLACED, and the room for members that did not come is given back"
    EVICTING = "its members are evicted, and it is not planned"


class GangEvent(Enum):
    """What is seen of a gang: in its pods, by the clock, in its owners, or in the planner's answer."""

    NO_MEMBER = "no member exists"
    SWITCHED_OFF = "gangs are switched off in its namespace"
    MARKED = "an earlier leader has marked a member for an eviction, which its jobs permit"
    MARKED_UNREAD = "a member is marked for an eviction, and its owners are not read yet"
    MARKED_STAYS = "a member is marked for an eviction, which would cost a job"
    NO_NODE = "the scheduler has found no node for a placed member in time, and the gang may be evicted"
    NO_NODE_STAYS = (
        "the scheduler has found no node for a placed member in time, and an eviction cannot help or would cost a job"
    )
    STILL_THERE = "members that are to leave are there"
    ALL_LEFT = "all members that were to leave have left"
    CONTRADICTORY = "its members contradict each other"
    UNCERTAIN = "its size is not known yet, or the scheduler is about to bind a member without a gate"
    GROUP_REFUSED = "its PodGroup was refused a moment ago"
    ABSENT = "members that start together do not exist"
    STAGED = "members that start together do not exist, and will be created when earlier ones run"
    COMPLETE = "all members that start together exist"
    TO_COME = "some members have begun, and others do not exist yet"
    OVERDUE = "members did not come in time, and those that have begun may be evicted"
    OVERDUE_STAYS = "members did not come in time, and those that have begun stay"
    ALL_HAVE_NODES = "all members have a node"
    PLACE_FOUND = "the planner has a place for all members"
    NO_PLACE = "the planner has no place now"
    NEVER_A_PLACE = "the planner has no place, and none can become free"
    ROOM_TAKEN = "the planner has no room for members that do not exist yet"
    SPLIT = "a part of the gang has begun, the rest has had no room for a while or is in another domain, and the gang may be evicted"
    SPLIT_UNREAD = "a part has begun, the rest has had no room for a while, and its owners are not read yet"
    SPLIT_STAYS = "a part has begun, the rest has had no room for a while or is in another domain, and an eviction cannot help or would cost a job"
    OTHERS_GIVE_WAY = "the planner has other gangs give way to it"
    PREEMPTED = "the planner has it give way to another gang, and the jobs of all that give way permit it"
    PREEMPTED_STAYS = "the planner has it give way, and its owners, or those of others that would go with it, are not read or do not permit it"


class GangAction(Enum):
    """What is done with a gang."""

    FORGET = "forget it"
    REST = "remember it until the times that count are over"
    OPEN = "open all gates for any node; forget it, but for times that count"
    GO_ON = "look at it again at once, as a gang that waits"
    LEAVE = "do nothing"
    HOLD = "keep the seats of its placed members; plan nothing"
    REFUSE = "say why; keep the seats of its placed members"
    EVICT = "say why, once; mark a member; evict the others, then that one; keep the seats of placed members"
    SAY_STAYS = "say why it is not evicted; go on as if nothing were due"
    SAY_ABSENT = "say which members it waits for"
    SAY_CLOSED = "say until when its gates stay closed"
    KEEP = "plan it without the members that wait"
    PLAN = "say where it is placed, if that is new; have the planner find room for all members"
    GIVE_BACK = "say that the room of those that did not come is given back; plan it without them"
    PLAN_WITHOUT = "plan it without the members that did not come"
    SETTLE = "say where it is placed, if that is new; forget its tries"
    ADMIT = "open the gates of the members that have a seat"
    SAY_NO_PLACE = "say what it lacks"
    SAY_REFUSED = "say what it lacks, and that it cannot pass by itself"
    SAY_ROOM_TAKEN = "say that members to come have no room"
    SAY_OTHERS_LEAVE = "say which gangs it waits for"


class GangRule(NamedTuple):
    """One row: the next state, what is done, and why."""

    then: GangState
    action: GangAction
    reason: str


_S, _E, _A = GangState, GangEvent, GangAction
_BEHIND = (_S.WAITING, _S.COOLING, _S.CLOSED)
_BEGUN = (_S.PLACED, _S.INCOMPLETE, _S.LAPSED)
_AWAITED = (_S.PLACED, _S.INCOMPLETE)
_PLANNED = (*_BEHIND, *_BEGUN)
_NOT_CLOSED = (_S.WAITING, _S.COOLING)


class _Rows(NamedTuple):
    """Rows that say the same of several states. `then` is None if the state stays."""

    event: GangEvent
    states: Collection[GangState]
    then: GangState | None
    action: GangAction
    reason: str


_ROWS = (
    _Rows(_E.NO_MEMBER, {_S.WAITING}, None, _A.FORGET, "the pods are the state"),
    _Rows(_E.NO_MEMBER, {_S.COOLING, _S.CLOSED}, None, _A.REST, "its pods are about to be made again"),
    _Rows(_E.SWITCHED_OFF, _BEHIND, _S.PLACED, _A.OPEN, "a gated pod is never forgotten"),
    _Rows(_E.SWITCHED_OFF, _BEGUN, None, _A.OPEN, "a gated pod is never forgotten"),
    _Rows(_E.SWITCHED_OFF, {_S.EVICTING}, _S.PLACED, _A.OPEN, "nothing is evicted where gangs are off"),
    _Rows(_E.MARKED, _BEGUN, _S.EVICTING, _A.EVICT, "of a gang that is half evicted the rest could never be joined"),
    _Rows(_E.MARKED_UNREAD, _BEGUN, None, _A.HOLD, "the owners' answer causes another pass"),
    _Rows(_E.MARKED_STAYS, _BEGUN, None, _A.SAY_STAYS, "a move costs no job"),
    _Rows(_E.NO_NODE, _BEGUN, _S.EVICTING, _A.EVICT, "another pod took its room, or it fits for the planner only"),
    _Rows(_E.NO_NODE_STAYS, _BEGUN, None, _A.SAY_STAYS, "the members that run are worth more than a try"),
    _Rows(_E.STILL_THERE, {_S.EVICTING}, None, _A.EVICT, "a budget may have forbidden an eviction, or a leader died"),
    _Rows(
        _E.ALL_LEFT,
        {_S.EVICTING},
        _S.WAITING,
        _A.GO_ON,
        "its pods come back; times that count have it COOLING or CLOSED",
    ),
    _Rows(_E.CONTRADICTORY, _PLANNED, None, _A.REFUSE, "the scheduler may bind placed members at any moment"),
    _Rows(_E.UNCERTAIN, _BEHIND, None, _A.KEEP, "what is known in a moment changes the place"),
    _Rows(_E.UNCERTAIN, _BEGUN, _S.PLACED, _A.KEEP, "what is known in a moment changes the place of the others"),
    _Rows(_E.GROUP_REFUSED, _PLANNED, None, _A.KEEP, "what cannot start keeps no room from others"),
    _Rows(_E.ABSENT, _NOT_CLOSED, None, _A.SAY_ABSENT, "what an object will make, a quota may refuse"),
    _Rows(_E.ABSENT, _BEGUN, None, _A.SAY_ABSENT, "a member without a gate began alone, and the others begin together"),
    _Rows(_E.ABSENT, {_S.CLOSED}, None, _A.SAY_CLOSED, "members did not come when the gates were open"),
    _Rows(_E.STAGED, _NOT_CLOSED, None, _A.PLAN, "the others would wait for the gates for ever"),
    _Rows(_E.STAGED, _BEGUN, None, _A.PLAN, "a member without a gate began alone, and the others would wait for ever"),
    _Rows(_E.STAGED, {_S.CLOSED}, None, _A.SAY_CLOSED, "members did not come when the gates were open"),
    _Rows(_E.COMPLETE, _BEHIND, None, _A.PLAN, "all can start together"),
    _Rows(_E.COMPLETE, _BEGUN, _S.PLACED, _A.PLAN, "late members follow those that have begun"),
    _Rows(_E.TO_COME, _AWAITED, _S.INCOMPLETE, _A.PLAN, "those that have begun need the others"),
    _Rows(_E.TO_COME, {_S.LAPSED}, None, _A.PLAN, "a later member began a new time; what was said is not said again"),
    _Rows(_E.OVERDUE, _AWAITED, _S.EVICTING, _A.EVICT, "it is as if the gates had never been opened"),
    _Rows(_E.OVERDUE_STAYS, _AWAITED, _S.LAPSED, _A.GIVE_BACK, "no room is kept for ever"),
    _Rows(_E.OVERDUE_STAYS, {_S.LAPSED}, None, _A.PLAN_WITHOUT, "it is said once"),
    _Rows(_E.ALL_HAVE_NODES, _BEGUN, _S.PLACED, _A.SETTLE, "the next failure is not of this start"),
    _Rows(_E.PLACE_FOUND, _BEHIND, _S.PLACED, _A.ADMIT, "there is room for all, which the planner counts as taken"),
    _Rows(_E.PLACE_FOUND, _BEGUN, None, _A.ADMIT, "late members get the seats that were kept, or others of the domain"),
    _Rows(_E.NO_PLACE, _PLANNED, None, _A.SAY_NO_PLACE, "room may become free"),
    _Rows(_E.NEVER_A_PLACE, _PLANNED, None, _A.SAY_REFUSED, "its author or the cluster's has to change something"),
    _Rows(_E.ROOM_TAKEN, _BEGUN, None, _A.SAY_ROOM_TAKEN, "no gate keeps pods of no gang out"),
    _Rows(_E.SPLIT, _BEGUN, _S.EVICTING, _A.EVICT, "a gang of which half runs is worse than one that waits"),
    _Rows(_E.SPLIT_UNREAD, _BEGUN, None, _A.LEAVE, "the owners' answer causes another pass"),
    _Rows(_E.SPLIT_STAYS, _BEGUN, None, _A.SAY_STAYS, "the members that run are worth more than a try"),
    _Rows(_E.OTHERS_GIVE_WAY, tuple(GangState), None, _A.SAY_OTHERS_LEAVE, "it gets their place when they have left"),
    _Rows(_E.PREEMPTED, _BEGUN, _S.EVICTING, _A.EVICT, "gangs give way whole"),
    _Rows(_E.PREEMPTED_STAYS, _BEGUN, None, _A.LEAVE, "what is known of its owners is old, and all give way or none"),
)

_OF_BEGUN = (_E.MARKED, _E.MARKED_UNREAD, _E.MARKED_STAYS, _E.NO_NODE, _E.NO_NODE_STAYS, _E.TO_COME, _E.OVERDUE_STAYS)
_ANSWERS_OF_BEGUN = (_E.ROOM_TAKEN, _E.SPLIT, _E.SPLIT_UNREAD, _E.SPLIT_STAYS, _E.PREEMPTED, _E.PREEMPTED_STAYS)
_OF_ARRIVALS = (_E.NO_MEMBER, _E.CONTRADICTORY, _E.UNCERTAIN, _E.GROUP_REFUSED, _E.ABSENT, _E.STAGED, _E.COMPLETE)
_IMPOSSIBLE_ROWS: tuple[tuple[Collection[GangEvent], Collection[GangState], str], ...] = (
    ((*_OF_BEGUN, _E.OVERDUE, _E.ALL_HAVE_NODES, *_ANSWERS_OF_BEGUN), _BEHIND, "a member that has begun is meant"),
    ((_E.NO_MEMBER,), _BEGUN, "a member that has begun exists"),
    ((_E.OVERDUE,), (_S.LAPSED,), "whether it is evicted is decided once"),
    ((_E.STILL_THERE, _E.ALL_LEFT), _PLANNED, "only of a gang that is evicted members are to leave"),
    (
        (*_OF_BEGUN, _E.OVERDUE, _E.ALL_HAVE_NODES, *_OF_ARRIVALS),
        (_S.EVICTING,),
        "ALL_LEFT or STILL_THERE is recognised first",
    ),
    (
        (*_ANSWERS_OF_BEGUN, _E.PLACE_FOUND, _E.NO_PLACE, _E.NEVER_A_PLACE),
        (_S.EVICTING,),
        "a gang that is evicted is not planned, nor asked to give way again",
    ),
)


def _rules() -> Iterator[tuple[tuple[GangState, GangEvent], GangRule]]:
    for rows in _ROWS:
        for state in rows.states:
            yield (state, rows.event), GangRule(rows.then or state, rows.action, rows.reason)


LIFE_CYCLE = dict(_rules())
IMPOSSIBLE = {
    (state, event): reason for events, states, reason in _IMPOSSIBLE_ROWS for event in events for state in states
}
