"""The table that the demo prints."""

from simnode.demo.scenario import Findings
from simnode.demo.table import rendered


def a_rail(number, guid):
    address, vf = f"10.56.{128 * number}.1/17", f"0000:0{3 + number}:00.1"
    return {"ifname": f"net{number + 1}", "address": address, "vf": vf, "guid": guid, "rail": number}


def a_pod(name, node, eth0, *rails):
    return {"name": name, "node": node, "eth0": eth0, "rails": list(rails), "add_ms": 20.04}


def findings(**changes):
    pods = [
        a_pod("plain-0", "node-a", "10.244.3.3"),
        a_pod("wide-0", "node-a", "10.244.3.4", a_rail(0, "02::01"), a_rail(1, "02::02")),
        a_pod("wide-1", "node-b", "10.244.4.4", a_rail(0, "02::03")),
    ]
    pings = [
        {"from": "plain-0", "to": "wide-0", "network": "eth0", "ok": True},
        {"from": "wide-0", "to": "wide-1", "network": "net1", "ok": True, "rail_bytes": [168, 0]},
    ]
    whole = {"pods": pods, "pings": pings, "checks": [{"what": "it is so", "ok": True}]}
    return Findings(**(whole | changes))


def test_pod_with_two_rails_has_two_lines_and_a_node_name_is_printed_once():
    assert list(rendered(findings())) == [
        "",
        "  node    pod      eth0        net   address         VF            GUID    rail  ADD ms",
        "  ──────  ───────  ──────────  ────  ──────────────  ────────────  ──────  ────  ──────",
        "  node-a  plain-0  10.244.3.3  -     -               -             -       -       20.0",
        "          wide-0   10.244.3.4  net1  10.56.0.1/17    0000:03:00.1  02::01  0       20.0",
        "                               net2  10.56.128.1/17  0000:04:00.1  02::02  1",
        "  node-b  wide-1   10.244.4.4  net1  10.56.0.1/17    0000:03:00.1  02::03  0       20.0",
        "",
        "  ✓ eth0  plain-0 → wide-0  on node-a",
        "  ✓ net1  wide-0 → wide-1   node-a → node-b  168 bytes on rail 0, 0 bytes on rail 1",
        "  ✓ it is so",
        "  ✓ left over: 0  (links, namespaces, mounts, processes, files)",
        "",
    ]


def test_table_marks_failed_checks_and_lists_what_is_left_over():
    lines = list(
        rendered(findings(checks=[{"what": "it is so", "ok": False}], left_over=1, left_over_items=["a link"]))
    )

    assert "  ✗ it is so" in lines
    assert lines[-3:] == ["  ✗ left over: 1  (links, namespaces, mounts, processes, files)", "      a link", ""]


def test_findings_held_only_if_all_checks_passed():
    failed = {"from": "plain-0", "to": "wide-0", "network": "eth0", "ok": False}

    assert findings().held
    assert not findings(pings=[failed]).held
    assert not findings(checks=[{"what": "it is so", "ok": False}]).held
    assert not findings(left_over_items=["a link"]).held
