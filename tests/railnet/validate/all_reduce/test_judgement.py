"""What is said of an all-reduce that fails, hangs, adds wrong, goes another way or is slow."""

import json
from typing import Any

import pytest

from railnet.validate.all_reduce.judgement import judge_all_reduces, untested_all_reduces
from railnet.validate.all_reduce.rail_all_reduce import RailAllReduce, without_nodes
from railnet.validate.all_reduce.result import RankEnd, RankResult
from railnet.validate.findings import baseline
from railnet.validate.findings.judgement import RailLimits
from railnet.validate.findings.speed_judgement import Judgement
from railnet.validate.reports.report import Report, as_json
from tests.railnet.validate.all_reduce.all_reduces import BY_TCP, POOR, all_reduce, nccl, result

_CLOSED = RankResult(RankEnd.FAILED, "RuntimeError: Connection closed by peer [10.56.0.3]", "1 MiB")
_UNANSWERED = RankResult(RankEnd.UNANSWERED)


def judged(*all_reduces: RailAllReduce, **options: Any) -> Judgement:
    return judge_all_reduces(all_reduces, **options)


def test_sound_all_reduces_of_two_rails_are_judged_by_each_other() -> None:
    assert judged(all_reduce(0, result(), result()), all_reduce(1, result(), result())) == Judgement()


@pytest.mark.parametrize(
    ("ranks", "nodes", "words"),
    [
        (
            (_CLOSED, RankResult(RankEnd.KILLED, "signal 9", "1 MiB"), _UNANSWERED),
            ("b",),
            "the rank of node b was ended at the all-reduce of 1 MiB: signal 9",
        ),
        (
            (_CLOSED, _CLOSED, RankResult(RankEnd.LOST, "cannot run a command by pods/x: no answer")),
            ("c",),
            "the rank of node c was lost: cannot run a command by pods/x: no answer",
        ),
        (
            (_CLOSED, RankResult(RankEnd.HUNG, at="1 MiB"), _UNANSWERED),
            ("a",),
            "the rank of node a has failed at the all-reduce of 1 MiB: RuntimeError: Connection closed by peer [10.56.0.3]",
        ),
        (
            (RankResult(RankEnd.HUNG, at="meeting"),) * 2,
            (),
            "; ".join(f"the rank of node {node} hangs at the meeting of all ranks, and was ended" for node in "ab"),
        ),
        ((result(), result(sizes=())), ("b",), "the rank of node b has measured nothing"),
    ],
)
def test_rank_that_is_the_cause_is_named_and_not_those_that_failed_after_it(
    ranks: tuple[RankResult, ...], nodes: tuple[str, ...], words: str
) -> None:
    (finding,) = judged(all_reduce(0, *ranks)).findings

    assert (finding.kind, finding.rail, finding.nodes) == ("allreduce", 0, nodes)
    assert finding.text == f"rail 0, all-reduce of {len(ranks)} nodes: no result: {words}"
    assert finding.look


def test_rank_that_was_killed_is_the_cause_though_of_another_one_nothing_is_known() -> None:
    unknown = RankResult(RankEnd.OUT_OF_REACH, "HTTP 500")
    both = all_reduce(0, unknown, RankResult(RankEnd.KILLED, "signal 9"), _CLOSED)

    assert [finding.nodes for finding in judged(without_nodes(both, {})).findings] == [("b",)]
    assert judged(without_nodes(all_reduce(0, unknown, _CLOSED), {})) == Judgement()


def test_all_reduce_with_a_result_stays_though_a_pod_has_gone_after_it() -> None:
    done = all_reduce(0, result(), result())

    assert without_nodes(done, {"a": "pod x on a was deleted"}) == done


def test_of_many_ranks_that_fail_a_few_are_shown() -> None:
    (finding,) = judged(all_reduce(0, *(_CLOSED,) * 8)).findings

    assert finding.text.endswith("; and 5 more")


def test_image_without_pytorch_is_said_once_and_is_no_finding() -> None:
    absent = RankResult(RankEnd.NO_TORCH, "No module named 'torch'", has_nccl_tests=True)
    both = [all_reduce(rail, absent, RankResult(RankEnd.HUNG)) for rail in (0, 1)]

    assert judge_all_reduces(both) == Judgement()
    (why,) = untested_all_reduces(both)
    assert why.startswith(
        "all-reduce over rails 0, 1: the image's python3 has no PyTorch (No module named 'torch'); name an image"
    )
    assert why.endswith(
        "all_reduce_perf, which the image has, needs MPI to start a rank on each node: run it as an MPIJob"
    )


def test_wrong_sum_is_a_finding_of_its_node() -> None:
    wrong = tuple(size._replace(is_right=False) for size in result().sizes)
    (finding,) = judged(all_reduce(0, result(), result(sizes=wrong)), all_reduce(1, result(), result())).findings

    assert finding.nodes == ("b",)
    assert finding.text == "rail 0, all-reduce of 2 nodes: node b has got a wrong sum of 8 bytes"


def test_all_reduce_that_went_over_eth0_is_a_finding() -> None:
    away = result(by_tcp={"eth0": 23 << 20})
    (finding,) = judged(all_reduce(0, away, away), all_reduce(1, away, away)).findings[:1]

    assert finding.text == "rail 0, all-reduce of 2 nodes: it went not over net1: eth0 has carried it (a, b)"
    assert "NCCL_SOCKET_IFNAME" in finding.look


def test_tcp_of_pods_with_rdma_devices_is_a_warning_and_says_what_the_pod_lacks() -> None:
    both = [all_reduce(rail, nccl(**BY_TCP, settings=POOR), nccl(**BY_TCP, settings=POOR)) for rail in (0, 1)]
    found = judge_all_reduces(both)

    assert found.findings == ()
    assert [warning.text for warning in found.warnings] == [
        f"rail {rail}, all-reduce of 2 nodes: it went over TCP on net1, though the pods have RDMA devices (mlx5_7 of a, mlx5_7 of b)"
        for rail in (0, 1)
    ]
    assert "NCCL_IB_DISABLE=1" in found.warnings[0].look


def test_tcp_of_gloo_and_of_pods_without_rdma_devices_is_no_warning() -> None:
    both = [
        all_reduce(0, result(device="mlx5_7"), result(device="mlx5_7")),
        all_reduce(1, result(device="mlx5_7"), result(device="mlx5_7")),
        all_reduce(2, nccl(**BY_TCP, device=""), nccl(**BY_TCP, device="")),
        all_reduce(3, nccl(**BY_TCP, device=""), nccl(**BY_TCP, device="")),
    ]

    assert judge_all_reduces(both) == Judgement()


def test_rail_below_half_of_the_others_is_a_finding_and_below_four_fifths_a_warning() -> None:
    rails = [all_reduce(rail, result(), result()) for rail in (0, 1)]
    slow = [all_reduce(2, result(0.003), result()), all_reduce(3, result(0.0015), result())]
    found = judge_all_reduces([*rails, *slow])

    assert [(finding.rail, finding.nodes) for finding in found.findings] == [(2, ())]
    assert found.findings[0].text == (
        "rail 2, all-reduce of 2 nodes: bus bandwidth 2.8 Gbit/s, 33% of 8.4, the median of the other rails"
    )
    assert [warning.rail for warning in found.warnings] == [3]


def test_rail_with_slower_ports_is_compared_with_rails_of_the_same_rate_alone() -> None:
    rails = [all_reduce(0, *(result(0.004),) * 2), *(all_reduce(rail, result(), result()) for rail in (1, 2))]
    rates = {(rail, node): 100.0 if rail == 0 else 400.0 for rail in (0, 1, 2) for node in "ab"}
    found = judged(*rails, rates=rates)
    slow = judged(*rails[1:], all_reduce(3, *(result(0.004),) * 2), rates={**rates, (3, "a"): 400.0, (3, "b"): 400.0})

    assert (found.findings, found.warnings) == ((), ())
    assert [unjudged.rail for unjudged in found.unjudged] == [0]
    assert [finding.rail for finding in slow.findings] == [3]


def test_rail_of_unknown_rate_is_not_compared_with_one_of_a_known_rate() -> None:
    both = [all_reduce(0, *(result(0.004),) * 2), all_reduce(1, result(), result())]
    found = judged(*both, rates={(1, "a"): 400.0})

    assert (found.findings, found.warnings) == ((), ())
    assert [unjudged.rail for unjudged in found.unjudged] == [0, 1]


def test_rails_of_other_libraries_and_other_numbers_of_nodes_are_not_compared() -> None:
    found = judged(all_reduce(0, result(), result()), all_reduce(1, nccl(), nccl()), all_reduce(2, *(nccl(),) * 3))

    assert (found.findings, found.warnings) == ((), ())
    assert [unjudged.rail for unjudged in found.unjudged] == [0, 1, 2]
    assert found.unjudged[0].text == (
        "rail 0, all-reduce: bus bandwidth 8.4 Gbit/s, and no like rail to compare with; give --least-busbw-gbits or --baseline"
    )


def test_limit_of_the_user_takes_the_place_of_the_other_rails() -> None:
    below = judged(all_reduce(0, result(), result()), least_gbits=10.0)
    reached = judged(all_reduce(0, result(), result()), least_gbits=8.0)

    assert [finding.text for finding in below.findings] == [
        "rail 0, all-reduce of 2 nodes: bus bandwidth 8.4 Gbit/s, at least 10 wanted"
    ]
    assert reached == Judgement()


def test_earlier_run_judges_an_all_reduce_of_as_many_nodes() -> None:
    was = Report({}, (), (), (), RailLimits(), all_reduces=(all_reduce(0, result(), result()),))
    earlier = baseline.parse("october.json", json.dumps(as_json(was)).encode())
    slower = judged(all_reduce(0, result(0.003), result(0.003)), earlier=earlier)
    larger = judged(all_reduce(0, *(result(0.003),) * 3), earlier=earlier)

    assert [finding.text for finding in slower.findings] == [
        "rail 0, all-reduce of 2 nodes: bus bandwidth 2.8 Gbit/s, 33% of 8.4, its speed in october.json"
    ]
    assert slower.unjudged == ()
    assert (larger.findings, len(larger.unjudged)) == ((), 1)


def test_gpu_that_pytorch_does_not_see_is_not_tested() -> None:
    both = [all_reduce(0, nccl(), result()), all_reduce(1, nccl(), nccl())]

    (why,) = untested_all_reduces(both, wants_gpu=True)
    assert why.startswith("all-reduce by NCCL: PyTorch sees no GPU in the pods of b, and took gloo")
    assert list(untested_all_reduces(both)) == []


def test_rail_that_was_not_tried_and_node_that_was_left_out_are_not_tested() -> None:
    untested = [
        RailAllReduce(0, untried="fewer than two pods have this rail, and a sound pair"),
        all_reduce(1, result(), result(), left_out=("y", "z")),
    ]

    assert list(untested_all_reduces(untested)) == [
        "all-reduce over rail 1: without y, z, which have no sound pair there",
        "all-reduce over rail 0: fewer than two pods have this rail, and a sound pair",
    ]
