"""`railnet status`, as people see it."""

from typing import Any

from railnet.status.status_table import rendered

PORT_DOWN = "port 1 of PF 0000:0c:00.0 (mlx5_1) is '1: DOWN', '2: Polling': check its cable and switch port"


def a_rail(number: int, address: str, **changes: Any) -> dict[str, Any]:
    whole = {
        "rail": number,
        "address": address,
        "netdev": f"ibs{number}",
        "rdma": f"mlx5_{number}",
        "port": "4: ACTIVE",
    }
    return {**whole, "vfs": 2, "reason": None, **changes}


def a_vf(rail: int, index: int, state: str = "free", reason: str | None = None) -> dict[str, Any]:
    bus = ("03", "0c")[rail]
    return {
        "vf": f"0000:{bus}:00.{index}",
        "card": f"0000:{bus}:00.0",
        "rail": rail,
        "resource": "rdma/ib_vf",
        "state": state,
        "reason": reason,
    }


def a_sandbox(
    name: str, *rails: tuple[int, str, str], seconds: float = 40.2, stage: str = "attached"
) -> dict[str, Any]:
    return {
        "id": f"c0ffee-{name}-0123456789abcdef",
        "ifname": "eth0",
        "pod": {"namespace": "ml" if name else "", "name": name, "uid": ""},
        "network": "default",
        "stage": stage,
        "seconds": seconds,
        "rails": [
            {"ifname": f"net{number}", "vf": vf, "rail": number - 1, "addresses": [address], "guid": f"02::{number}"}
            for number, vf, address in rails
        ],
    }


def told(**changes: Any) -> dict[str, Any]:
    whole = {
        "version": "7.8.9",
        "reasons": [],
        "queue": 0,
        "rails": [a_rail(0, "0000:03:00.0"), a_rail(1, "0000:0c:00.0")],
        "vfs": [a_vf(0, 1, "attached"), a_vf(0, 2), a_vf(1, 1, "attached"), a_vf(1, 2)],
        "sandboxes": [
            a_sandbox("wide", (1, "0000:03:00.1", "10.56.3.1/17"), (2, "0000:0c:00.1", "10.56.131.1/17"), seconds=7300)
        ],
    }
    return whole | changes


def test_table_of_a_node_that_is_served() -> None:
    assert list(rendered(told())) == [
        "railnet 7.8.9: ready",
        "",
        "RAIL  PF            RDMA    NETDEV  PORT    VFS  FREE  ATTACHED  UNHEALTHY",
        "0     0000:03:00.0  mlx5_0  ibs0    ACTIVE    2     1         1          0",
        "1     0000:0c:00.0  mlx5_1  ibs1    ACTIVE    2     1         1          0",
        "",
        "RESOURCE    VFS  FREE  ATTACHED  UNHEALTHY",
        "rdma/ib_vf    4     2         2          0",
        "",
        "POD      NET   VF            RAIL  ADDRESS         GUID   STATE     FOR",
        "ml/wide  net1  0000:03:00.1  0     10.56.3.1/17    02::1  attached  2h",
        "         net2  0000:0c:00.1  1     10.56.131.1/17  02::2",
    ]


def test_each_reason_is_printed_once() -> None:
    vfs = [a_vf(0, 1), a_vf(0, 2), a_vf(1, 1, "unhealthy", PORT_DOWN), a_vf(1, 2, "unhealthy", PORT_DOWN)]
    rails = [a_rail(0, "0000:03:00.0"), a_rail(1, "0000:0c:00.0", port="1: DOWN", netdev=None)]
    lines = list(
        rendered(told(reasons=["kubelet does not watch rdma/ib_vf"], vfs=vfs, rails=rails, sandboxes=[], queue=3))
    )

    assert lines[:2] == ["railnet 7.8.9: not ready", "  kubelet does not watch rdma/ib_vf"]
    assert "1     0000:0c:00.0  mlx5_1  -       DOWN      2     0         0          2" in lines
    assert lines[-5:] == [
        "",
        "Unhealthy VFs, which kubelet gives to no new pod:",
        f"  2 VFs: {PORT_DOWN}",
        "",
        "3 plugins wait for a delegate slot.",
    ]


def test_sandboxes_are_sorted_by_pod_and_shown_with_missing_facts() -> None:
    sandboxes = [
        a_sandbox("b", (1, "0000:03:00.1", "10.56.3.1/17"), stage="planned", seconds=0.4),
        a_sandbox("a", stage="detaching", seconds=200_000),
        a_sandbox("", (1, "0000:03:00.2", "10.56.3.2/17"), seconds=150),
    ]
    lines = list(rendered(told(sandboxes=sandboxes)))

    assert lines[-3:] == [
        "sandbox c0ffee--0123456789ab  net1  0000:03:00.2  0     10.56.3.2/17  02::1  attached   2m",
        "ml/a                                                    -             -      detaching  2d",
        "ml/b                          net1  0000:03:00.1  0     10.56.3.1/17  02::1  planned    0s",
    ]


def test_control_characters_in_a_link_name_are_shown_as_numbers() -> None:
    sandbox = a_sandbox("a", (1, "0000:03:00.1", "10.56.3.1/17"))
    sandbox["rails"][0]["ifname"] = "\x1b[2J\udcff"

    row = list(rendered(told(sandboxes=[sandbox])))[-1]

    assert row.split()[:3] == ["ml/a", r"\x1b[2J\udcff", "0000:03:00.1"]
    assert row.isascii()


def test_table_of_a_node_without_a_card() -> None:
    assert list(rendered(told(rails=[], vfs=[], sandboxes=[]))) == [
        "railnet 7.8.9: ready",
        "",
        "This node has no card that can be a rail. Pods that ask for no rail run as before.",
    ]


def test_rails_that_no_pod_gets_are_shown_with_the_reason() -> None:
    missing = a_rail(0, "0000:03:00.0", rdma=None, netdev=None, port=None, vfs=0, reason="rail 0 has no card")
    moved = a_rail(1, "0000:0c:00.0", rail=None, reason="the card has moved")
    shown = told(reasons=["the card has moved"], rails=[missing, moved], vfs=[a_vf(1, 1) | {"rail": None}])

    lines = list(rendered(shown))

    assert lines[4:10] == [
        "0     0000:03:00.0  -       -       -         0     0         0          0",
        "-     0000:0c:00.0  mlx5_1  ibs1    ACTIVE    2     1         0          0",
        "",
        "Rails that no pod gets:",
        "  rail 0 has no card",
        "",
    ]


def test_table_has_leaf_switches_and_what_topology_labels_lack_if_the_daemon_asks_for_them() -> None:
    rails = [
        a_rail(0, "0000:03:00.0", leaf="0002c903007e5a10/12", leafReason=None),
        a_rail(1, "0000:0c:00.0", leaf=None, leafReason="the link of mlx5_1 is not up (2: Polling)"),
        a_rail(2, "0000:23:00.0"),
    ]
    lines = list(rendered(told(rails=rails, topology="topology labels: HTTP 403; it is tried again")))

    assert lines[2].split()[-2:] == ["UNHEALTHY", "LEAF/PORT"]
    assert [line.split()[-1] for line in lines[3:6]] == ["0002c903007e5a10/12", "-", "-"]
    assert lines[6:10] == [
        "",
        "What topology labels lack:",
        "  rail 1: the link of mlx5_1 is not up (2: Polling)",
        "  topology labels: HTTP 403; it is tried again",
    ]


def test_table_says_why_the_slices_of_the_node_are_not_written() -> None:
    lines = list(rendered(told(slices="ResourceSlices: HTTP 403; it is tried again")))

    title = "Why the node's ResourceSlices are not as they should be:"
    assert lines[lines.index(title) + 1] == "  ResourceSlices: HTTP 403; it is tried again"


def test_table_says_why_containers_keep_the_runtimes_limit_of_locked_memory() -> None:
    lines = list(rendered(told(memlock="the container runtime has no NRI at /run/nri/nri.sock")))

    title = "Why containers with a rail keep the runtime's limit of locked memory:"
    assert lines[lines.index(title) + 1] == "  the container runtime has no NRI at /run/nri/nri.sock"


def test_table_has_what_the_condition_of_the_node_lacks() -> None:
    lines = list(rendered(told(condition="RailnetRails: HTTP 403; it is tried again")))

    assert lines[lines.index("What the node's condition lacks:") + 1] == "  RailnetRails: HTTP 403; it is tried again"


def test_table_without_topology_labels_is_as_before() -> None:
    assert list(rendered(told(topology=None))) == list(rendered(told()))


def test_roce_has_a_table_of_its_own_and_pods_have_their_gids() -> None:
    first = {"rail": 0, "address": "0000:03:00.0", "mtu": 9000, "rdmaMtu": 4096}
    second = {"rail": None, "address": "0000:0c:00.0", "mtu": None, "rdmaMtu": None}
    one, other = a_sandbox("train", (1, "0000:03:00.1", "10.58.0.1/24")), a_sandbox("gone")
    one["rails"][0]["gid"] = {"index": 3, "address": "10.58.0.1"}
    lines = list(
        rendered(
            told(
                roce=[
                    {**first, "losslessPriorities": [3, 5], "priorityBy": "DSCP", "trafficClass": "Global tclass=106"},
                    {**first, "losslessPriorities": [], "priorityBy": "PCP", "trafficClass": ""},
                    {**second, "losslessPriorities": None, "priorityBy": None, "trafficClass": None},
                ],
                roceUnread=[{"address": "0000:0c:00.1", "why": "its files have not answered"}],
                sandboxes=[one, {**other, "rails": []}],
            )
        )
    )

    (head,) = (number for number, line in enumerate(lines) if line.startswith("ROCE RAIL"))
    assert [line.split() for line in lines[head + 1 : head + 4]] == [
        ["0", "0000:03:00.0", "9000", "4096", "3,", "5", "DSCP", "Global", "tclass=106"],
        ["0", "0000:03:00.0", "9000", "4096", "none", "PCP", "-"],
        ["-", "0000:0c:00.0", "-", "-", "-", "-", "-"],
    ]
    assert lines[head + 4] == "  0000:0c:00.1: its files have not answered"
    (pods,) = (number for number, line in enumerate(lines) if line.startswith("POD"))
    assert lines[pods].endswith("GID")
    assert [line.split()[-2:] for line in lines[pods + 1 : pods + 3]] == [["40s", "-"], ["3:", "10.58.0.1"]]


def test_table_has_errors_of_rails_that_are_active_and_why_the_kernels_log_is_not_read() -> None:
    lines = list(
        rendered(
            told(errors=["rail 1: port 1 of mlx5_1 counts too many symbol_error"], kernelLog="/dev/kmsg: No such file")
        )
    )

    for title, line in (
        ("What is wrong with rails that are ACTIVE:", "  rail 1: port 1 of mlx5_1 counts too many symbol_error"),
        ("Why the kernel's log is not read:", "  /dev/kmsg: No such file"),
    ):
        assert lines[lines.index(title) + 1] == line
