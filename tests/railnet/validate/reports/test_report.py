"""The report as a person, a program and a browser get it."""

from html.parser import HTMLParser
from itertools import combinations
from typing import Any

from railnet import VERSION
from railnet.validate.findings.judgement import RailLimits, judge
from railnet.validate.pair_plan import Pair, plan
from railnet.validate.probe.measured import Measured, MeasuredRdma
from railnet.validate.probe.probe_pod_state import PodRail
from railnet.validate.reports.html_report import html
from railnet.validate.reports.report import Report, as_json, rendered
from railnet.validate.reports.run_description import RunDescription
from tests.railnet.validate.measurements import all_pairs, cut, measured


def report(pairs: list[Measured], untested: tuple[str, ...] = ()) -> Report:
    nodes = {node for one in pairs for node in (one.pair.server, one.pair.client)}
    rails_of = {node: (PodRail(0, "net1", "10.56.0.1", 4092),) for node in nodes}
    found = judge(pairs, {(0, node): 4092 for node in nodes}, RailLimits())
    return Report(
        rails_of, tuple(pairs), found.findings, untested, RailLimits(), warnings=found.warnings, unjudged=found.unjudged
    )


CUT = report(
    [measured(0, "a", "b"), cut(0, "a", "c"), cut(0, "b", "c")], ("node d: it is not ready: kubelet has stopped",)
)


def test_matrix_names_the_cut_rail() -> None:
    assert list(rendered(CUT)) == [
        f"railnet {VERSION}: 3 pairs on 1 rail of 3 nodes: 1 finding, 1 not tested, 1 speed not judged",
        "",
        "rail 0: largest packet 4092 bytes, round trip 20 us; RDMA: not tried (no pair has said why)",
        "Gbit/s     1     2    3",
        "1 a        -  90.0  cut",
        "2 b     90.0     -  cut",
        "3 c      cut   cut    -",
        "",
        "findings:",
        "  rail 0 of node c, all its 2 pairs: no connection, or it was lost (round trip: No route to host)",
        "    look at: the port of this node (`railnet doctor` in its Railnet pod), then its cable and the switch's port",
        "",
        "not tested:",
        "  node d: it is not ready: kubelet has stopped",
        "",
        "not judged:",
        "  rail 0, TCP: 1 pair of two nodes, 90.0 Gbit/s, and no other rail to compare with; give --least-gbits or --baseline",
        "",
        "not tried: GPUDirect",
    ]


def test_speed_that_was_not_judged_is_said_and_is_not_called_free_of_findings() -> None:
    lines = list(rendered(report(all_pairs(0, "ab"))))

    assert lines[0] == f"railnet {VERSION}: 1 pair on 1 rail of 2 nodes: 1 speed not judged"
    assert lines[lines.index("not judged:") + 1].startswith("  rail 0, TCP: 1 pair of two nodes, 90.0 Gbit/s")


def test_warnings_are_apart_from_findings() -> None:
    slow = [one._replace(gbits=60.0) if one.pair.client == "c" else one for one in all_pairs(0, "abc")]
    shown = report(slow)
    lines, page = list(rendered(shown)), _Page()
    page.feed(html(shown))

    assert lines[0] == f"railnet {VERSION}: 3 pairs on 1 rail of 3 nodes: no findings, 1 warning"
    assert lines[lines.index("warnings:") + 1].startswith("  rail 0 of node c, all its 2 pairs: TCP 60.0 Gbit/s, 67%")
    assert (as_json(shown)["findings"], [one["nodes"] for one in as_json(shown)["warnings"]]) == ([], [("c",)])
    assert page.cells == ["none", "good", "doubtful", "good", "none", "doubtful", "doubtful", "doubtful", "none"]


def test_each_finding_says_what_to_look_at_in_json_too() -> None:
    (finding,) = as_json(CUT)["findings"]

    assert finding["look"].startswith("the port of this node")


def test_large_rail_is_a_list_of_its_slowest_pairs_and_says_what_the_plan_left_out() -> None:
    nodes = {f"node-{number:02}": (0,) for number in range(20)}
    pairs = [measured(0, *one[1:]) for each in plan(nodes, 0) for one in each]
    pairs[5] = pairs[5]._replace(gbits=1.0)
    lines = list(rendered(report(pairs)))

    assert f"{len(pairs)} of 190 pairs: a ring, and random pairs" in lines[2]
    assert lines[5].split() == [*pairs[5].pair[1:], "1.0"]
    assert len([line for line in lines if line.startswith("node-")]) == 10


def test_wide_shows_all_pairs_of_a_large_rail() -> None:
    nodes = {f"node-{number:02}": (0,) for number in range(20)}
    pairs = [measured(0, *one[1:]) for each in plan(nodes, 0) for one in each]

    lines = list(rendered(report(pairs), wide=True))

    assert sum(line.endswith("90.0") for line in lines) == len(pairs)
    assert not [line for line in lines if "slowest" in line]


def test_json_has_each_pair_and_each_finding() -> None:
    found = as_json(CUT)

    assert found["pairs"][0] == {
        "rail": 0,
        "server": "a",
        "client": "b",
        "roundTripMicroseconds": 20.0,
        "mtu": 4092,
        "portGbits": [None, None],
        "gbits": 90.0,
        "failed": None,
        "untried": None,
        "rdma": {"gbits": None, "latencyMicroseconds": None, "failed": None, "untried": {}},
    }
    assert [one["nodes"] for one in found["findings"]] == [("c",)]
    assert found["nodes"]["a"] == [{"rail": 0, "netdev": "net1", "address": "10.56.0.1", "mtu": 4092}]


class _Page(HTMLParser):
    """The cells of the tables with their classes, all text, and each attribute that would load something."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.text: list[str] = []
        self.loads: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)
        found: dict[str, Any] = dict(attrs)
        self.loads += [name for name in ("src", "href") if name in found] + ([tag] if tag in ("script", "link") else [])
        if tag == "td" and "class" in found:
            self.cells.append(found["class"])

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_html_is_whole_and_loads_nothing() -> None:
    page = _Page()
    page.feed(html(CUT))

    assert (page.open, page.loads) == ([], [])
    assert page.cells == ["none", "good", "bad", "good", "none", "bad", "bad", "bad", "none"]
    assert any(text.startswith("rail 0 of node c") for text in page.text)


def test_html_escapes_what_a_node_is_called() -> None:
    hostile = report([Measured(Pair(0, "<script>", "b"), 20.0, 4092, 90.0)], ("<b>",))

    assert "<script>" not in html(hostile)
    assert "<b>" not in html(hostile)


def test_html_of_many_nodes_has_every_pair() -> None:
    nodes = [f"n{number}" for number in range(20)]
    page = _Page()
    page.feed(html(report([measured(0, *pair) for pair in combinations(nodes, 2)])))

    assert page.cells.count("good") == 380


def test_pair_that_was_not_tried_is_marked() -> None:
    lines = list(rendered(report([*all_pairs(0, "ab"), Measured(Pair(0, "a", "c"), untried="no answer")])))

    assert lines[4].split() == ["1", "a", "-", "90.0", "?"]
    assert lines[5].split() == ["2", "b", "90.0", "-", "."]


FASTER = MeasuredRdma(gbits=380.0, latency_us=0.9)
WITH_RDMA = report(
    [
        measured(0, "a", "b", rdma=FASTER),
        measured(0, "a", "c", rdma=MeasuredRdma(failed="ib_write_bw: status 1: Unable to init the socket connection")),
        measured(
            0,
            "b",
            "c",
            rdma=MeasuredRdma(
                untried=tuple((tool, "net1 has no RDMA device in the pod") for tool in ("ib_write_bw", "ib_write_lat"))
            ),
        ),
    ]
)


def test_rdma_has_a_matrix_of_its_own() -> None:
    lines = list(rendered(WITH_RDMA))

    assert lines[2] == (
        "rail 0: largest packet 4092 bytes, round trip 20 us, latency of RDMA 0.90 us; "
        "RDMA: failed between 1 of 2 pairs, 380.0 Gbit/s between others"
    )
    assert [line.split() for line in lines[8:12]] == [
        ["RDMA", "Gbit/s", "1", "2", "3"],
        ["1", "a", "-", "380.0", "fail"],
        ["2", "b", "380.0", "-", "?"],
        ["3", "c", "fail", "?", "-"],
    ]
    assert lines[-1] == "not tried: ib_write_bw, ib_write_lat: net1 has no RDMA device in the pod; GPUDirect"


def test_large_rail_lists_the_slowest_pairs_of_rdma_too() -> None:
    nodes = {f"node-{number:02}": (0,) for number in range(20)}
    pairs = [measured(0, *one[1:], rdma=FASTER) for each in plan(nodes, 0) for one in each]
    pairs[5] = pairs[5]._replace(rdma=MeasuredRdma(gbits=1.0))
    lines = list(rendered(report(pairs)))

    assert lines[18].split() == [*pairs[5].pair[1:], "1.0"]


def test_html_and_json_have_what_rdma_has_measured() -> None:
    page = _Page()
    page.feed(html(WITH_RDMA))

    assert page.cells[:9] == ["none", "good", "good", "good", "none", "good", "good", "good", "none"]
    assert page.cells[9:] == ["none", "good", "bad", "good", "none", "unknown", "bad", "unknown", "none"]
    assert "RDMA, Gbit/s" in page.text
    assert as_json(WITH_RDMA)["pairs"][0]["rdma"] == {
        "gbits": 380.0,
        "latencyMicroseconds": 0.9,
        "failed": None,
        "untried": {},
    }


def test_html_says_when_where_and_with_what_it_was_measured_and_what_its_colours_mean() -> None:
    about = RunDescription(
        "2026-11-27T08:00:00+00:00", 63.2, "10.0.0.1:6443", "<lab>", "ml", "registry/perftest:1", 3.0, "october.json"
    )
    page = _Page()
    page.feed(html(CUT._replace(about=about, limits=RailLimits(least_rdma_gbits=380.0))))
    shown = dict(zip(page.text, page.text[1:], strict=False))

    assert (page.open, page.loads) == ([], [])
    assert {name: shown[name] for name in ("date", "cluster", "context", "namespace", "image", "compared with")} == {
        "date": "2026-11-27T08:00:00+00:00, 63 s",
        "cluster": "10.0.0.1:6443",
        "context": "<lab>",
        "namespace": "ml",
        "image": "registry/perftest:1",
        "compared with": "october.json",
    }
    assert shown["mode"] == "full, 3 s for each bandwidth"
    assert shown["limits"] == (
        "at least 380 Gbit/s by RDMA; TCP: below 50% of the median a finding, below 80% a warning"
    )
    assert "Legend" in page.text
    assert " no connection, or it was lost" in page.text
