"""Prepare and Unprepare of a claim with a fault at each state-changing call of the daemon; kubelet tries again, or gives up."""

import os
from collections.abc import Iterator
from errno import EIO, ENOSPC, EROFS, errorcode
from functools import partial
from pathlib import Path

import pytest

from railnet.apiserver.service_account import FOLDER
from simnode.chaos.syscall_supervisor import CallWatch, Moment, Supervisor
from simnode.kubernetes.api_server import ApiServer
from tests.faults.fault_kinds import FAILED, KILLED, FaultKind
from tests.faults.matrix import Row
from tests.faults.points import each_point
from tests.faults.supervised_claims import FILES, NO_ANSWER, VFS, DraNode, SupervisedClaims


def _fail(number: int, _moment: Moment) -> int:
    return number


_ERRORS = [FaultKind(f"call failed, {errorcode[number]}", partial(_fail, number)) for number in (ENOSPC, EIO, EROFS)]
_KINDS = [KILLED, FAILED, *_ERRORS]
_IDS = [kind.name for kind in _KINDS]


@pytest.fixture(scope="module")
def claims() -> Iterator[SupervisedClaims]:
    with (
        Supervisor(Path("/run/simnode/supervisor.sock")) as supervisor,
        ApiServer(FOLDER) as cluster,
        DraNode(Path(os.environ["RAILNET_CNI_PLUGINS"]), vfs=VFS) as node,
    ):
        yield SupervisedClaims(node, supervisor, cluster)


@pytest.mark.parametrize("kind", _KINDS, ids=_IDS)
def test_claim_is_prepared_by_the_retry_after_a_fault_at_any_call(
    claims: SupervisedClaims, row: Row, kind: FaultKind
) -> None:
    row.operation, row.process, row.fault = "Prepare, kubelet tries again", "daemon", kind.name

    def trial(watch: CallWatch) -> list[str]:
        pod, other = claims.admit(0), claims.admit(0)
        claim, others = claims.claim(pod), claims.claim(other)
        problems = _after_fault(claims, kind, watch, claims.prepare(pod, claim, watch))
        problems += _expect(None, "the retry", claims.prepare(pod, claim))
        problems += _expect("is not free", "another claim for the VF", claims.prepare(other, others))
        problems += _expect(None, "its Unprepare", claims.unprepare(other))
        return [*problems, *claims.run_and_unprepare(pod)]

    each_point(row, "daemon", kind, claims, trial)


@pytest.mark.parametrize("kind", _KINDS, ids=_IDS)
def test_vf_is_one_claims_when_another_claim_comes_after_a_fault_at_any_call(
    claims: SupervisedClaims, row: Row, kind: FaultKind
) -> None:
    row.operation, row.process, row.fault = "Prepare, another claim comes first", "daemon", kind.name

    def trial(watch: CallWatch) -> list[str]:
        pod, other = claims.admit(0), claims.admit(0)
        claim, others = claims.claim(pod), claims.claim(other)
        first = claims.prepare(pod, claim, watch)
        problems = _after_fault(claims, kind, watch, first)
        given = claims.prepare(other, others) is None
        if given and first is None:
            problems += ["the VF was given to two claims"]
        claims.node.kill_daemon()  # what its memory had is lost: the disk must say the same
        claims.node.start_daemon()
        refused, holder = ((pod, claim), (other, others)) if given else ((other, others), (pod, claim))
        problems += _expect("is not free", "the claim that came late", claims.prepare(*refused))
        problems += _expect(None, "the claim that has the VF", claims.prepare(*holder))
        problems += _expect(None, "Unprepare of the refused claim", claims.unprepare(refused[0]))
        return [*problems, *claims.run_and_unprepare(holder[0])]

    each_point(row, "daemon", kind, claims, trial)


@pytest.mark.parametrize("kind", _KINDS, ids=_IDS)
def test_claim_is_unprepared_by_the_retry_after_a_fault_at_any_call(
    claims: SupervisedClaims, row: Row, kind: FaultKind
) -> None:
    row.operation, row.process, row.fault = "Unprepare", "daemon", kind.name

    def trial(watch: CallWatch) -> list[str]:
        pod, other = claims.admit(0), claims.admit(0)
        problems = _expect(None, "Prepare", claims.prepare(pod, claims.claim(pod)))
        problems += _after_fault(claims, kind, watch, claims.unprepare(pod, watch))
        problems += _expect(None, "the retry", claims.unprepare(pod))
        problems += _expect(None, "the next claim for the VF", claims.prepare(other, claims.claim(other)))
        return [*problems, *claims.run_and_unprepare(other)]

    each_point(row, "daemon", kind, claims, trial)


class _OfFilesOfClaims(FaultKind):
    """A kind whose points are the calls about the files of claims."""

    __slots__ = ()

    def watch(self, process: str, number: int) -> CallWatch:
        return CallWatch(process, number, self.interfere, lambda point: any(name in point.operand for name in FILES))


_AT_START = [_OfFilesOfClaims(*kind) for kind in (KILLED, *_ERRORS)]


@pytest.mark.parametrize("kind", _AT_START, ids=[kind.name for kind in _AT_START])
def test_claims_are_as_they_were_after_a_start_with_a_fault_at_any_call_about_them(
    claims: SupervisedClaims, row: Row, kind: FaultKind
) -> None:
    row.operation, row.process, row.fault = "start with claims", "daemon", kind.name

    def trial(watch: CallWatch) -> list[str]:
        pod, other = claims.admit(0), claims.admit(0)
        claim, damaged = claims.claim(pod), claims.claim(other)
        problems = _expect(None, "Prepare", claims.prepare(pod, claim))
        claims.node.kill_daemon()
        claims.leave_files(damaged["metadata"]["uid"])
        problems += claims.start_with_fault(watch)
        problems += _expect(None, "Prepare again", claims.prepare(pod, claim))
        problems += _expect("is not free", "the claim of the damaged record", claims.prepare(other, damaged))
        problems += _expect(None, "its Unprepare", claims.unprepare(other))
        return [*problems, *claims.run_and_unprepare(pod)]

    each_point(row, "daemon", kind, claims, trial)


def _after_fault(claims: SupervisedClaims, kind: FaultKind, watch: CallWatch, answered: str | None) -> list[str]:
    """Start the daemon again if the fault has killed it; a call that failed must have an answer in words, or none of it may show."""
    if kind is KILLED and watch.hit is not None:
        return claims.restart_dead_daemon(killed=True)
    if answered is not None and answered.startswith(NO_ANSWER):
        return [f"the answer to kubelet: {answered}"]
    return claims.restart_dead_daemon()


def _expect(words: str | None, what: str, answered: str | None) -> list[str]:
    fits = answered is None if words is None else answered is not None and words in answered
    return [] if fits else [f"{what}: {answered or 'not refused'}"]
