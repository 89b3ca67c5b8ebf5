"""From what was read to a proposal. Pure."""

from dataclasses import replace

from railnet.plan.cluster_reading import Reading
from railnet.plan.kept_groups import Outside
from railnet.plan.node_kinds import kinds, names
from railnet.plan.proposal import Proposal, propose


def plan(reading: Reading, vfs: int | None = None) -> Proposal:
    """Return the proposal; `vfs` is the number of VFs that each rail should have, None to choose."""
    documents = reading.running.documents
    nodes = [
        replace(
            node,
            named=isinstance(documents.get(node.group, {}).get("rails"), list),
            link_types=reading.running.link_types_of(node.group),
        )
        for node in reading.nodes
    ]
    found_kinds = kinds(nodes)
    left = frozenset(node.group for kind in found_kinds.kinds for node in kind.nodes)
    outside = Outside(found_kinds.cardless, reading.unseen, reading.unasked, left)
    proposal = propose(found_kinds.kinds, outside, reading.running, vfs)
    cardless = (
        (
            f"{names(node.name for node in found_kinds.cardless)}: no card that could be a rail, so nothing was proposed for them",
        )
        if found_kinds.cardless
        else ()
    )
    older = [node.name for node in reading.nodes if not node.complete]
    old = (
        (
            f"{names(older)}: their Railnet reports neither models nor link types nor NUMA nodes; upgrade it, and plan again",
        )
        if older
        else ()
    )
    return replace(
        proposal,
        assumed=(*reading.running.unread, *found_kinds.assumed, *cardless, *proposal.assumed),
        wrong=(*old, *found_kinds.wrong, *proposal.wrong),
    )
