"""Judges the all-reduce over each rail: it failed, its sums are wrong, it went another way than over its rail, or it is slow. Pure.

A bus bandwidth without a limit of the user is judged by an earlier run, and by the other rails whose ports have the same rate; without these it
is not judged.
"""

from collections.abc import Iterator, Sequence
from statistics import median
from types import MappingProxyType

from railnet.validate.all_reduce.rail_all_reduce import NodeRank, RailAllReduce
from railnet.validate.all_reduce.result import RankEnd, shown_size
from railnet.validate.all_reduce.transport import MessageTransport, look_without_rdma
from railnet.validate.findings.baseline import Earlier
from railnet.validate.findings.next_look import BUSY_RANKS, OTHER_PATH, WRONG_SUM
from railnet.validate.findings.rail_finding import RailFinding, shown_gbits
from railnet.validate.findings.speed_judgement import (
    FINDING,
    WARNING,
    Judgement,
    Rates,
    Speed,
    Unjudged,
    shown_share,
    together,
    usual_rate,
)

KIND = "allreduce"
ALL_REDUCE = Speed("all-reduce", "--least-busbw-gbits", lambda _: None, of_port=False)
_MOST_WORDS = 3  # ranks whose words are shown
_WORDS = {
    RankEnd.FAILED: "has failed at {at}: {why}",
    RankEnd.KILLED: "was ended at {at}: {why}",
    RankEnd.HUNG: "hangs at {at}, and was ended",
    RankEnd.LOST: "was lost: {why}",
}
# The rank that is the cause comes first: after its end the others fail, hang or do not answer.
_CAUSES = ((RankEnd.KILLED, RankEnd.LOST), (RankEnd.FAILED,), (RankEnd.HUNG,))
_STEPS = {"start": "its start (import of PyTorch)", "meeting": "the meeting of all ranks"}


def judge_all_reduces(
    all_reduces: Sequence[RailAllReduce],
    least_gbits: float | None = None,
    earlier: Earlier | None = None,
    rates: Rates = MappingProxyType({}),
) -> Judgement:
    """Judge all rails; `least_gbits` is the bus bandwidth that the user wants, and `rates` are those of the ports."""
    done = [all_reduce for all_reduce in all_reduces if all_reduce.is_done]
    return together(
        (
            Judgement(tuple(finding for all_reduce in all_reduces for finding in _wrong(all_reduce))),
            Judgement(warnings=tuple(finding for all_reduce in done for finding in _without_rdma(all_reduce))),
            *(
                _judge_speed(all_reduce, _of_like_rails(all_reduce, done, rates), least_gbits, earlier)
                for all_reduce in done
            ),
        )
    )


def untested_all_reduces(all_reduces: Sequence[RailAllReduce], *, wants_gpu: bool = False) -> Iterator[str]:
    """Yield what was not tested of it: rails that were not tried, and nodes without a sound pair there; an image without PyTorch once.

    `wants_gpu` says that each pod has a GPU, which PyTorch must have used.
    """
    without_gpu = {
        rank.node for all_reduce in all_reduces for rank in all_reduce.ranks if rank.result.backend == "gloo"
    }
    if wants_gpu and without_gpu:
        yield (
            f"all-reduce by NCCL: PyTorch sees no GPU in the pods of {', '.join(sorted(without_gpu)[:_MOST_WORDS])}, and took gloo; "
            "name an image whose PyTorch has CUDA, and a resource that is a GPU"
        )
    reasons: dict[str, list[int]] = {}
    for all_reduce in all_reduces:
        if why := all_reduce.untried or _without_torch(all_reduce):
            reasons.setdefault(why, []).append(all_reduce.rail)
        if all_reduce.left_out and all_reduce.ranks:
            have = "has" if len(all_reduce.left_out) == 1 else "have"
            nodes = ", ".join(all_reduce.left_out)
            yield f"all-reduce over rail {all_reduce.rail}: without {nodes}, which {have} no sound pair there"
    for why, rails in reasons.items():
        yield f"all-reduce over rail{'' if len(rails) == 1 else 's'} {', '.join(map(str, rails))}: {why}"


def _without_torch(all_reduce: RailAllReduce) -> str:
    """Return why ranks have no PyTorch, and what is needed; empty if all have it."""
    lacking = [rank for rank in all_reduce.ranks if rank.result.end is RankEnd.NO_TORCH]
    if not lacking:
        return ""
    words = (
        f"the image's python3 has no PyTorch ({lacking[0].result.why}); name an image with PyTorch, with NCCL for GPUs"
    )
    if lacking[0].result.has_nccl_tests:
        words += "; nccl-tests' all_reduce_perf, which the image has, needs MPI to start a rank on each node: run it as an MPIJob"
    return words


def _wrong(all_reduce: RailAllReduce) -> Iterator[RailFinding]:
    if all_reduce.ranks and not all_reduce.is_done and not _without_torch(all_reduce):
        yield _no_result(all_reduce)
    for rank in all_reduce.ranks:
        for size in rank.result.sizes:
            if not size.is_right:
                text = f"{_place(all_reduce)}: node {rank.node} has got a wrong sum of {shown_size(size.bytes)}"
                yield RailFinding(KIND, all_reduce.rail, (rank.node,), text, ALL_REDUCE.name, WRONG_SUM)
                break
    away: dict[str, list[NodeRank]] = {}
    for rank, path in all_reduce.paths:
        if path.transport is MessageTransport.ELSEWHERE:
            away.setdefault(path.words, []).append(rank)
    for words, ranks in away.items():
        nodes = tuple(rank.node for rank in ranks)
        text = f"{_place(all_reduce)}: it went {words} ({', '.join(nodes)})"
        yield RailFinding(KIND, all_reduce.rail, _blamed(all_reduce, ranks), text, ALL_REDUCE.name, OTHER_PATH)


def _no_result(all_reduce: RailAllReduce) -> RailFinding:
    """Name the ranks that are the cause, and not those that have failed after them."""
    for ends in _CAUSES:
        causes = [rank for rank in all_reduce.ranks if rank.result.end in ends]
        if causes:
            break
    else:  # all have ended well, and one has measured nothing
        causes = [rank for rank in all_reduce.ranks if not rank.result.sizes] or list(all_reduce.ranks)
    words = [f"the rank of node {rank.node} {_end_words(rank)}" for rank in causes[:_MOST_WORDS]]
    more = [f"and {len(causes) - _MOST_WORDS} more"] if len(causes) > _MOST_WORDS else []
    text = f"{_place(all_reduce)}: no result: {'; '.join([*words, *more])}"
    return RailFinding(KIND, all_reduce.rail, _blamed(all_reduce, causes), text, ALL_REDUCE.name)


def _end_words(rank: NodeRank) -> str:
    result = rank.result
    words = _WORDS.get(result.end, "has measured nothing")
    at = _STEPS.get(result.at, f"the all-reduce of {result.at}")
    return words.format(at=at, why=result.why or "it says nothing")


def _without_rdma(all_reduce: RailAllReduce) -> Iterator[RailFinding]:
    """Warn of NCCL that took TCP though the pod has an RDMA device. Gloo has no RDMA."""
    by_look: dict[str, list[NodeRank]] = {}
    for rank, path in all_reduce.paths:
        if path.transport is MessageTransport.TCP and rank.result.backend == "nccl" and rank.result.device:
            by_look.setdefault(look_without_rdma(rank.result), []).append(rank)
    for look, ranks in by_look.items():
        devices = ", ".join(f"{rank.result.device} of {rank.node}" for rank in ranks[:_MOST_WORDS])
        text = f"{_place(all_reduce)}: it went over TCP on {ranks[0].netdev}, though the pods have RDMA devices ({devices})"
        yield RailFinding(KIND, all_reduce.rail, _blamed(all_reduce, ranks), text, ALL_REDUCE.name, look)


def _of_like_rails(all_reduce: RailAllReduce, done: Sequence[RailAllReduce], rates: Rates) -> list[float]:
    """Return the bus bandwidths in Gbit/s of the other rails of its kind."""
    kind = _kind(all_reduce, rates)
    return [
        other.best.bus_gbits
        for other in done
        if other.rail != all_reduce.rail and other.best is not None and _kind(other, rates) == kind
    ]


def _judge_speed(
    all_reduce: RailAllReduce, alike: Sequence[float], least: float | None, earlier: Earlier | None
) -> Judgement:
    best = all_reduce.best
    if best is None:
        return Judgement()
    place = f"{_place(all_reduce)}: bus bandwidth"
    if least is not None:
        text = f"{place} {shown_gbits(best.bus_gbits)} Gbit/s, at least {least:g} wanted"
        return Judgement((_slow(all_reduce, text),) if best.bus_gbits < least else ())
    references = [(median(alike), "the median of the other rails")] if alike else []
    was = None if earlier is None else earlier.all_reduces.get(place_in_report(all_reduce))
    if earlier is not None and was:
        references.append((was, f"its speed in {earlier.words}"))
    if not references:
        why = f"rail {all_reduce.rail}, all-reduce: bus bandwidth {shown_gbits(best.bus_gbits)} Gbit/s, and no like rail to compare with"
        return Judgement(
            unjudged=(Unjudged(all_reduce.rail, ALL_REDUCE, f"{why}; give {ALL_REDUCE.limit} or --baseline"),)
        )
    verdicts = [
        (best.bus_gbits / gbits, _slow(all_reduce, f"{place} {shown_share(best.bus_gbits, gbits)}, {words}"))
        for gbits, words in references
        if gbits
    ]
    return Judgement(
        tuple(finding for share, finding in verdicts if share < FINDING),
        tuple(finding for share, finding in verdicts if FINDING <= share < WARNING),
    )


def place_in_report(all_reduce: RailAllReduce) -> tuple[int, str, int]:
    """Return what an all-reduce must have in common with one of an earlier run: the rail, the library, and the number of nodes."""
    return all_reduce.rail, all_reduce.backend, len(all_reduce.ranks)


def _kind(all_reduce: RailAllReduce, rates: Rates) -> tuple[str, int, frozenset[MessageTransport], float | None]:
    """Return what two rails must have in common to be compared; two rails of which no rate is known may be."""
    transports = frozenset(path.transport for _, path in all_reduce.paths)
    return all_reduce.backend, len(all_reduce.ranks), transports, usual_rate(all_reduce.rail, rates)


def _slow(all_reduce: RailAllReduce, text: str) -> RailFinding:
    return RailFinding(KIND, all_reduce.rail, (), text, ALL_REDUCE.name, BUSY_RANKS)


def _blamed(all_reduce: RailAllReduce, ranks: Sequence[NodeRank]) -> tuple[str, ...]:
    """Return the nodes of ranks; none of them if all ranks are meant, because then it is the rail's."""
    return () if len(ranks) == len(all_reduce.ranks) else tuple(rank.node for rank in ranks)


def _place(all_reduce: RailAllReduce) -> str:
    return f"rail {all_reduce.rail}, all-reduce of {len(all_reduce.ranks)} nodes"
