"""The node's configuration: every key, every default, and the message for every kind of wrong value."""

import re
from ipaddress import ip_network
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from deviceplugin.pool_selection import Pool, Selector
from railnet import configuration as configurations
from railnet.configuration import (
    Admission,
    Configuration,
    HostConfiguration,
    Publish,
    Timeouts,
    load,
    parse,
    read_document,
)
from railnet.errors import Misconfigured
from railnet.fabric.port_counter_thresholds import PortThresholds, Threshold
from railnet.value_readers import Fault, Faults
from railnet.vf.pci_address import PciAddress
from railnet.vf.permitted_networks import (
    Limit,
    Network,
    Networks,
    NoIpam,
    PluginIpam,
    SliceIpam,
    StaticIpam,
    StickyIpam,
)
from railnet.vf.pf_selector import PfSelector
from railnet.vf.provision import Provision, ProvisionBySelector

PAGE = Path(__file__).parents[2] / "docs/configuration.md"
EVERYTHING = """\
apiVersion: railnet.io/v1alpha1
kind: NodeConfiguration
host: {sysfs: /a, kubelet: /b, devicePlugins: /f, flannel: /c/subnet.env, root: /d, cri: /e/crio.sock, nri: /i/nri.sock, cniConf: /g, cniBin: /h, kernelLog: /j}
primary: /etc/cni/net.d/10-flannel.conflist
rails: auto
pools:
- resource: rdma/first
  select:
    linkType: [infiniband]
    vendor: ["15b3"]
    device: ["101c", "101e"]
    pfDevice: ["101b"]
    driver: [mlx5_core]
    pf: ["0000:03:00.0"]
    pciAddress: ["0000:03:00.1"]
- resource: rdma/rest
  management: true
  ncclRails: true
provision:
- {pf: "0000:03:00.0", vfs: 8, guid: derived}
- {pf: "0000:83:00.0", vfs: 4}
rdma: {netns: shared}
networks:
  default: {mtu: 2044, wait: 2s, pkey: 0x8001, ipam: {type: slice, range: fd56::/64, rails: 8}}
  verbs: {ipam: {type: none}}
  fixed: {pkey: "0x7fff", routing: none, ipam: {type: static, range: 10.60.0.0/16}}
  staying: {ipam: {type: sticky, range: 10.58.0.0/16, rails: 8}}
  elsewhere: {ipam: {type: host-local, ranges: [[{subnet: 10.61.0.0/24}]]}}
limits:
  "*": {networks: [default, verbs]}
  team-a: {networks: [default, fixed], static: true, pools: [rdma/first]}
timeouts: {delegate: 10s, add: 2m, daemon: 500ms, kubelet: 1.5s}
publish: {networkStatus: false, events: false, topologyLabels: true, railsCondition: true, railsTaint: true, kernelMessages: true}
admission: {priorityClass: iteration}
portThresholds: {symbol_error: 5/30s, port_rcv_errors: ignore, recovery: 1m}
memlock: 64Gi
"""


def refusal(text: str) -> str:
    with pytest.raises(Misconfigured) as raised:
        parse(text, "node.yaml")
    return str(raised.value)


def test_every_key_is_read() -> None:
    assert parse(EVERYTHING, "node.yaml") == Configuration(
        host=HostConfiguration(
            Path("/a"),
            Path("/b"),
            Path("/f"),
            Path("/c/subnet.env"),
            Path("/d"),
            Path("/e/crio.sock"),
            Path("/i/nri.sock"),
            Path("/g"),
            Path("/h"),
            Path("/j"),
        ),
        primary="/etc/cni/net.d/10-flannel.conflist",
        pools=(
            Pool(
                "rdma/first",
                Selector(
                    link_type=("infiniband",),
                    vendor=("15b3",),
                    device=("101c", "101e"),
                    pf_device=("101b",),
                    driver=("mlx5_core",),
                    pf=(PciAddress(0, 3, 0, 0),),
                    pci_address=(PciAddress(0, 3, 0, 1),),
                ),
            ),
            Pool("rdma/rest", management=True, nccl_rails=True),
        ),
        provision=(Provision(PciAddress(0, 3, 0, 0), 8), Provision(PciAddress(0, 0x83, 0, 0), 4)),
        networks=Networks(
            {
                "default": Network("default", 2044, 2.0, 0x8001, SliceIpam(ip_network("fd56::/64"), 8)),
                "verbs": Network("verbs", ipam=NoIpam()),
                "fixed": Network("fixed", pkey=0x7FFF, ipam=StaticIpam(ip_network("10.60.0.0/16")), routing="none"),
                "staying": Network("staying", ipam=StickyIpam(ip_network("10.58.0.0/16"), 8)),
                "elsewhere": Network(
                    "elsewhere",
                    ipam=PluginIpam({"type": "host-local", "ranges": [[{"subnet": "10.61.0.0/24"}]]}),
                ),
            },
            {
                "*": Limit(("default", "verbs")),
                "team-a": Limit(("default", "fixed"), static=True, pools=("rdma/first",)),
            },
        ),
        timeouts=Timeouts(delegate=10.0, add=120.0, daemon=0.5, kubelet=1.5),
        publish=Publish(
            network_status=False,
            events=False,
            topology_labels=True,
            rails_condition=True,
            rails_taint=True,
            kernel_messages=True,
        ),
        port_thresholds=PortThresholds(symbol_error=Threshold(5, 30.0), port_rcv_errors=None, recovery=60.0),
        admission=Admission(priority_class="iteration"),
        memlock=64 << 30,
    )


@pytest.mark.parametrize("text", ["", "\n# a comment\n", "{}", "null", "host: {}\nnetworks: {}\ntimeouts: {}\n"])
def test_missing_key_has_its_default(text: str) -> None:
    assert parse(text, "node.yaml") == Configuration()


def test_defaults_are_the_documented_values() -> None:
    default = Configuration()

    assert default.host == HostConfiguration(
        Path("/sys"),
        None,
        Path("/var/lib/kubelet/device-plugins"),
        Path("/run/flannel/subnet.env"),
        Path("/proc/1/root"),
        Path("/run/containerd/containerd.sock"),
        Path("/run/nri/nri.sock"),
        Path("/etc/cni/net.d"),
        Path("/opt/cni/bin"),
    )
    assert (default.primary, default.provision) == (None, ())
    assert default.pools == (Pool("rdma/ib_vf", Selector(link_type=("infiniband",))),)
    assert default.networks == Networks(
        {"default": Network("default", "pf", 5.0, None, SliceIpam(ip_network("10.56.0.0/16")))},
        {"*": Limit(("default",), static=False)},
    )
    assert default.timeouts == Timeouts(delegate=30.0, add=60.0, daemon=5.0, kubelet=2.0)
    assert default.publish == Publish(
        network_status=True, events=True, topology_labels=False, rails_condition=False, rails_taint=False
    )
    assert default.admission == Admission(priority_class=None)
    assert default.memlock is None


@pytest.mark.parametrize(
    ("text", "value"),
    [("runtime", None), ("unlimited", (1 << 64) - 1), ("1048576", 1 << 20), ("8Mi", 8 << 20), ("'2Ti'", 2 << 40)],
)
def test_memlock_is_a_word_or_a_number_of_bytes(text: str, value: int | None) -> None:
    assert parse(f"memlock: {text}", "node.yaml").memlock == value


@pytest.mark.parametrize(
    "text",
    ["0", "-1", "64G", "1.5Gi", "64 Gi", "infinity", "true", "null", "[1]", "18446744073709551615", "17000000Ti"],
)
def test_memlock_that_is_no_limit_is_refused_in_words(text: str) -> None:
    with pytest.raises(
        Misconfigured, match=r"memlock is .*; it should be runtime, unlimited, or a number of bytes such as 64Gi"
    ):
        parse(f"memlock: {text}", "node.yaml")


def test_no_counter_is_judged_if_the_thresholds_are_ignored() -> None:
    thresholds = parse("portThresholds: ignore", "node.yaml").port_thresholds

    assert (thresholds.names, thresholds.recovery) == ((), PortThresholds().recovery)


def test_rails_have_the_link_layers_that_the_pools_select() -> None:
    assert Configuration().link_layers == {"InfiniBand"}
    assert parse("pools: [{resource: a/b}]", "node.yaml").link_layers == {"InfiniBand", "Ethernet"}


def test_resources_are_those_of_the_pools() -> None:
    assert parse(EVERYTHING, "node.yaml").resources == {"rdma/first", "rdma/rest"}


def test_defaults_auto_and_pf_can_be_written() -> None:
    assert parse("primary: auto\nnetworks: {default: {mtu: pf}}", "node.yaml") == Configuration()


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("odd: 1", "odd"),
        ("Pools: []", "Pools"),
        ("1: 2", "1"),
        ("null: 2", "null"),
        ('"a\\ud800": 2', "'a\\ud800'"),
        ('"a\\e[2J": 2', "'a\\x1b[2J'"),
        ("host: {proc: /proc}", "host.proc"),
        ("pools: [{resource: a/b, selector: {}}]", "pools[0].selector"),
        ("pools: [{resource: a/b}, {resource: c/d, select: {linktype: []}}]", "pools[1].select.linktype"),
        ("provision: [{pf: '0000:03:00.0', vfs: 8, numvfs: 8}]", "provision[0].numvfs"),
        ("rdma: {mode: shared}", "rdma.mode"),
        ("networks: {fast: {speed: high}}", "networks.fast.speed"),
        ("limits: {team-a: {pkeys: []}}", "limits.team-a.pkeys"),
        ("networks: {default: {MTU: 2044}}", "networks.default.MTU"),
        ("networks: {default: {ipam: {type: slice, subnet: x}}}", "networks.default.ipam.subnet"),
        ("timeouts: {del: 5s}", "timeouts.del"),
        ("publish: {network-status: true}", "publish.network-status"),
        ("admission: {priorityClassName: iteration}", "admission.priorityClassName"),
    ],
)
def test_message_about_an_unknown_key_has_its_path_and_the_known_keys(text: str, path: str) -> None:
    assert refusal(text).startswith(f"node.yaml: {path} is an unknown key; known here: ")


WRONG = {
    "apiVersion: v1": "apiVersion is 'v1'; it should be railnet.io/v1alpha1 (this version of Railnet knows no other value)",
    "kind: Node": "kind is 'Node'; it should be NodeConfiguration (this version of Railnet knows no other value)",
    "host: /sys": "host is '/sys'; it should be a mapping",
    "host: {sysfs: sys}": "host.sysfs is 'sys'; it should be an absolute path",
    'host: {sysfs: "/a\\0b"}': "host.sysfs is '/a\\x00b'; it should be an absolute path",
    "host: {cniConf: net.d}": "host.cniConf is 'net.d'; it should be an absolute path",
    **{
        f"host: {{cniBin: '{path}'}}": f"host.cniBin is '{path}'; it should be an absolute path of at most 160 characters without white space and ':'"
        for path in ("bin", "/opt/cni bin", "/opt/cni:/usr/lib/cni")
    },
    "host: {sysfs: null}": "host.sysfs is null; it should be an absolute path",
    "primary: flannel": "primary is 'flannel'; it should be auto, or the absolute path of a CNI configuration",
    "primary: [/x]": "primary is ['/x']; it should be auto, or the absolute path of a CNI configuration",
    "rails: mlx5_0": "rails is 'mlx5_0'; it should be auto, a list of the PCI addresses of PFs, or a mapping with the key select",
    "rails: [mlx5_0]": "rails[0] is 'mlx5_0'; it should be a PCI address in quotes, such as \"0000:03:00.0\"",
    "pools: {}": "pools is {}; it should be a list",
    "pools: []": "pools is []; it should be a list of at least one pool (leave the key out for the default pool)",
    "pools: null": "pools is null; it should be a list",
    "pools: [x]": "pools[0] is 'x'; it should be a mapping",
    "pools: [{}]": "pools[0].resource is missing; it should be the name of an extended resource, such as rdma/ib_vf",
    "pools: [{resource: ib_vf}]": "pools[0].resource is 'ib_vf'; it should be the name of an extended resource, such as rdma/ib_vf",
    "pools: [{resource: 'a/b '}]": "pools[0].resource is 'a/b '; it should be the name of an extended resource, such as rdma/ib_vf",
    "pools: [{resource: a/b}, {resource: a/b}]": "pools[1].resource is 'a/b', as pools[0].resource is; it should be listed once",
    "pools: [{resource: a/b, select: {linkType: infiniband}}]": "pools[0].select.linkType is 'infiniband'; it should be a list",
    "pools: [{resource: a/b, select: {linkType: [ib]}}]": "pools[0].select.linkType[0] is 'ib'; it should be one of infiniband, ether",
    "pools: [{resource: a/b, select: {linkType: [infiniband, ib]}}]": "pools[0].select.linkType[1] is 'ib'; it should be one of infiniband, ether",
    "pools: [{resource: a/b, select: {vendor: [5555]}}]": "pools[0].select.vendor[0] is 5555; it should be a string (quote a number)",
    "pools: [{resource: a/b, select: {pf: ['03:00.0']}}]": "pools[0].select.pf[0] is '03:00.0'; it should be a PCI address in quotes, such as \"0000:03:00.0\"",
    "rails: {select: [x]}": "rails.select is ['x']; it should be a mapping",
    "rails: {select: {numaNode: ['0']}}": "rails.select.numaNode[0] is '0'; it should be a NUMA node, a whole number from -1 (none) to 1023",
    "rails: {pf: []}": "rails.pf is an unknown key; known here: select",
    "provision: [{vfs: 8}]": 'provision[0] has neither pf nor select; it should have pf, which is a PCI address in quotes, such as "0000:03:00.0", or select',
    "provision: [{select: {}}]": "provision[0].vfs is missing; it should be a whole number above 0",
    "provision: [{pf: '0000:03:00.0', select: {}, vfs: 8}]": "provision[0] has pf and select; it should have one: select may have a key pf, too",
    "provision: [{select: {function: [8]}, vfs: 8}]": "provision[0].select.function[0] is 8; it should be the function number of a PCI address, from 0 to 7: 1 is the second port of a card",
    "provision: [{select: {device: ['1021']}, vfs: 8}]": "provision[0].select.device is an unknown key; known here: linkType, vendor, pfDevice, function, numaNode, pf; did you mean pfDevice?",
    "provision: [{pf: '0000:03:00.0'}]": "provision[0].vfs is missing; it should be a whole number above 0",
    "provision: [{pf: 0000:03:00.0, vfs: 8}]": 'provision[0].pf is 180.0; it should be a PCI address in quotes, such as "0000:03:00.0"',
    "provision: [{pf: '0000:03:00.0', vfs: 0}]": "provision[0].vfs is 0; it should be a whole number above 0",
    "provision: [{pf: '0000:03:00.0', vfs: true}]": "provision[0].vfs is true; it should be a whole number above 0",
    "provision: [{pf: '0000:03:00.0', vfs: '8'}]": "provision[0].vfs is '8'; it should be a whole number above 0",
    "provision: [{pf: '0000:03:00.0', vfs: 8, guid: x}]": "provision[0].guid is 'x'; it should be derived (this version of Railnet knows no other value)",
    "provision: [{pf: '0000:03:00.0', vfs: 8}, {pf: '0000:03:00.0', vfs: 4}]": "provision[1].pf is '0000:03:00.0', as provision[0].pf is; it should be listed once",
    "rdma: {netns: exclusive}": "rdma.netns is 'exclusive'; it should be shared (this version of Railnet knows no other value)",
    "networks: {default: []}": "networks.default is []; it should be a mapping",
    "networks: {default: {mtu: -1}}": "networks.default.mtu is -1; it should be pf, or a whole number above 0",
    "networks: {default: {mtu: jumbo}}": "networks.default.mtu is 'jumbo'; it should be pf, or a whole number above 0",
    "networks: {fast: {mtu: true}}": "networks.fast.mtu is true; it should be pf, or a whole number above 0",
    "networks: {fast: {mtu: 2044.0}}": "networks.fast.mtu is 2044.0; it should be pf, or a whole number above 0",
    "networks: {default: {ipam: {range: 10.56.0.0/16}}}": "networks.default.ipam is {'range': '10.56.0.0/16'}; it should be a mapping whose type is slice, none, static, sticky, or the file name of a CNI IPAM plugin",
    "networks: {default: {ipam: {type: railnet}}}": "networks.default.ipam is {'type': 'railnet'}; it should be a mapping whose type is slice, none, static, sticky, or the file name of a CNI IPAM plugin",
    "networks: {default: {ipam: {type: []}}}": "networks.default.ipam is {'type': []}; it should be a mapping whose type is slice, none, static, sticky, or the file name of a CNI IPAM plugin",
    "networks: {default: {ipam: slice}}": "networks.default.ipam is 'slice'; it should be a mapping whose type is slice, none, static, sticky, or the file name of a CNI IPAM plugin",
    "networks: {default: {ipam: {type: ../sh}}}": "networks.default.ipam is {'type': '../sh'}; it should be a mapping whose type is slice, none, static, sticky, or the file name of a CNI IPAM plugin",
    "networks: {default: {ipam: {type: dhcp, since: 2020-01-01}}}": "networks.default.ipam cannot be given to plugin 'dhcp' as JSON: Object of type date is not JSON serializable; it should have only strings, numbers, true, false, null, lists and mappings",
    "networks: {default: {ipam: {type: slice, rails: 0}}}": "networks.default.ipam.rails is 0; it should be a whole number above 0",
    "offer: both": "offer is 'both'; it should be one of device-plugin, dra",
    "offer: [device-plugin, dra]": "offer is ['device-plugin', 'dra']; it should be one of device-plugin, dra",
    "offer: dra\noffer: device-plugin": "the key 'offer' is at line 1 and again at line 2; remove one of them",
    "networks: {default: {routing: no}}": "networks.default.routing is false; it should be one of auto, none",
    "networks: {default: {routing: strict}}": "networks.default.routing is 'strict'; it should be one of auto, none",
    "networks: {default: {routing: null}}": "networks.default.routing is null; it should be one of auto, none",
    "networks: {default: {routing: [auto]}}": "networks.default.routing is ['auto']; it should be one of auto, none",
    "networks: {default: {pkey: 0x8000}}": 'networks.default.pkey is 32768; it should be a PKey from "0x0001" to "0xffff", but not "0x8000"',
    "networks: {default: {pkey: 0x0}}": 'networks.default.pkey is 0; it should be a PKey from "0x0001" to "0xffff", but not "0x8000"',
    "networks: {default: {pkey: ffff}}": 'networks.default.pkey is \'ffff\'; it should be a PKey from "0x0001" to "0xffff", but not "0x8000"',
    "networks: {default: {pkey: 0x18001}}": 'networks.default.pkey is 98305; it should be a PKey from "0x0001" to "0xffff", but not "0x8000"',
    "networks: {Fast: {}}": "a key of networks is 'Fast'; it should be the name of a network (lower-case letters, digits and hyphens, at most 63)",
    "networks: {1: {}}": "a key of networks is 1; it should be the name of a network (lower-case letters, digits and hyphens, at most 63)",
    "networks: []": "networks is []; it should be a mapping in which each key is the name of a network (lower-case letters, digits and hyphens, at most 63)",
    "networks: {a: {ipam: {type: sticky}}}": "networks.a.ipam.range is missing; it should be a network whose host bits are 0, such as 10.56.0.0/16",
    "networks: {a: {ipam: {type: sticky, range: 10.56.0.0/24}}}": "networks.default.ipam.range 10.56.0.0/16 and networks.a.ipam.range 10.56.0.0/24 overlap; they should not (a network without `range` has 10.56.0.0/16)",
    "networks: {a: {ipam: {type: sticky, range: 10.58.0.0/24}}, b: {ipam: {type: static, range: 10.58.0.0/16}}}": "networks.a.ipam.range 10.58.0.0/24 and networks.b.ipam.range 10.58.0.0/16 overlap; they should not (a network without `range` has 10.56.0.0/16)",
    "networks: {a: {ipam: {type: sticky, range: 10.58.0.0/24}}, b: {ipam: {type: sticky, range: 10.58.0.0/16}}}": "networks.a.ipam.range 10.58.0.0/24 and networks.b.ipam.range 10.58.0.0/16 overlap; they should not (a network without `range` has 10.56.0.0/16)",
    "networks: {a: {ipam: {type: sticky, range: 10.58.0.0/28, rails: 5}}}": "networks.a.ipam.range 10.58.0.0/28 is too small for 5 rails: it should leave 2 bits for addresses at least",
    "networks: {other: {ipam: {type: slice, range: 10.56.128.0/17}}}": "networks.default.ipam.range 10.56.0.0/16 and networks.other.ipam.range 10.56.128.0/17 overlap; they should not (a network without `range` has 10.56.0.0/16)",
    "limits: {Team: {}}": "a key of limits is 'Team'; it should be the name of a namespace, or '*' for every namespace without an entry",
    "limits: {'**': {}}": "a key of limits is '**'; it should be the name of a namespace, or '*' for every namespace without an entry",
    "limits: {team-a: {networks: [fast]}}": "limits.team-a.networks[0] is 'fast'; it should be a name that 'networks' defines: default",
    "limits: {team-a: {networks: default}}": "limits.team-a.networks is 'default'; it should be a list",
    "limits: {team-a: {static: 1}}": "limits.team-a.static is 1; it should be true or false",
    "networks: {default: {ipam: {type: slice, range: 10.56.0.1/16}}}": "networks.default.ipam.range is '10.56.0.1/16'; it should be a network whose host bits are 0, such as 10.56.0.0/16",
    "networks: {default: {ipam: {type: slice, range: 10.56}}}": "networks.default.ipam.range is 10.56; it should be a network whose host bits are 0, such as 10.56.0.0/16",
    "timeouts: 5s": "timeouts is '5s'; it should be a mapping",
    "timeouts: {add: 5}": "timeouts.add is 5; it should be a duration like 500ms, 5s or 2m, at most 60m",
    "timeouts: {add: 0s}": "timeouts.add is '0s'; it should be a duration like 500ms, 5s or 2m, at most 60m",
    "timeouts: {add: -5s}": "timeouts.add is '-5s'; it should be a duration like 500ms, 5s or 2m, at most 60m",
    "timeouts: {add: 5 s}": "timeouts.add is '5 s'; it should be a duration like 500ms, 5s or 2m, at most 60m",
    "timeouts: {add: 1h}": "timeouts.add is '1h'; it should be a duration like 500ms, 5s or 2m, at most 60m",
    "publish: {topologyLabels: leaf}": "publish.topologyLabels is 'leaf'; it should be true or false",
    "publish: {railsCondition: 1}": "publish.railsCondition is 1; it should be true or false",
    "publish: {railsTaint: true}": "publish.railsTaint is true; publish.railsCondition should be true, too: the taint follows the condition",
    "publish: {kernelMessages: true}": "publish.kernelMessages is true; publish.railsCondition should be true, too: the condition has what the kernel says",
    "portThresholds: off": "portThresholds is false; it should be ignore, or a mapping that has a threshold for each counter that needs another one",
    "portThresholds: {symbol_error: 120}": "portThresholds.symbol_error is 120; it should be ignore, or how many events in which time are allowed, such as 120/60m (from 10s to 60m)",
    "portThresholds: {symbol_error: off}": "portThresholds.symbol_error is false; it should be ignore, or how many events in which time are allowed, such as 120/60m (from 10s to 60m)",
    "portThresholds: {link_downed: 2/5s}": "portThresholds.link_downed is '2/5s'; it should be ignore, or how many events in which time are allowed, such as 120/60m (from 10s to 60m)",
    "portThresholds: {link_downed: -1/5m}": "portThresholds.link_downed is '-1/5m'; it should be ignore, or how many events in which time are allowed, such as 120/60m (from 10s to 60m)",
    "portThresholds: {link_downed: 255/60m}": "portThresholds.link_downed allows 255 events or more; the counter stops at 255, so it would never be too many",
    "portThresholds: {recovery: 2h}": "portThresholds.recovery is '2h'; it should be a duration like 500ms, 5s or 2m, at most 60m",
    "publish: {events: 'no'}": "publish.events is 'no'; it should be true or false",
    "admission: iteration": "admission is 'iteration'; it should be a mapping",
    "admission: {priorityClass: null}": "admission.priorityClass is null; it should be the name of a PriorityClass (lower-case letters, digits, hyphens and dots, at most 253)",
    "admission: {priorityClass: Iteration}": "admission.priorityClass is 'Iteration'; it should be the name of a PriorityClass (lower-case letters, digits, hyphens and dots, at most 253)",
    "admission: {priorityClass: 1000}": "admission.priorityClass is 1000; it should be the name of a PriorityClass (lower-case letters, digits, hyphens and dots, at most 253)",
    "admission: {priorityClass: a..b}": "admission.priorityClass is 'a..b'; it should be the name of a PriorityClass (lower-case letters, digits, hyphens and dots, at most 253)",
}


def test_folder_of_plugins_whose_path_is_too_long_for_an_interpreter_line_is_refused() -> None:
    folder = "/" + 160 * "a"

    assert "at most 160 characters" in refusal(f"host: {{cniBin: {folder}}}")
    assert parse(f"host: {{cniBin: {folder[:-1]}}}", "node.yaml").host.cni_bin == Path(folder[:-1])


@pytest.mark.parametrize(("text", "words"), WRONG.items(), ids=WRONG.keys())
def test_message_about_a_wrong_value_has_its_path_the_value_and_the_remedy(text: str, words: str) -> None:
    assert refusal(text) == f"node.yaml: {words}"


def test_faults_of_a_whole_file_are_found_at_once_and_values_that_agree_with_a_faulty_one_are_not_judged() -> None:
    text = """\
    odd: 1
    host: {sysfs: sys, cniBin: bin}
    provision: [{pf: 0000:13:00.0}, {pf: "0000:03:00.0", vfs: 8}, {pf: "0000:03:00.0", vfs: 8}]
    networks: {Fast: {}, slow: {mtu: -1}}
    pools: [{resource: a/b}, {resource: a/b}]
    limits: {team-a: {networks: [slow]}}
    publish: {railsTaint: true}
    """

    with pytest.raises(Faults) as raised:
        read_document(yaml.safe_load(text))

    assert [fault.path for fault in raised.value.faults if isinstance(fault, Fault)] == [
        "odd",
        "host.sysfs",
        "host.cniBin",
        "provision[0].vfs",
        "provision[0].pf",
        "networks.Fast",
        "networks.slow.mtu",
        "pools[1].resource",
        "publish.railsTaint",
    ]
    assert refusal(text).endswith("; `railnet config check` shows 8 more")


def test_file_with_a_hundred_thousand_faults_has_a_short_message_and_few_faults() -> None:
    with pytest.raises(Faults) as raised:
        read_document({"rails": ["x"] * 100_000, "pools": [{}] * 100_000})

    assert len(raised.value.faults) == 100


def test_pfs_are_selected_by_conditions() -> None:
    text = """
    rails: {select: {pfDevice: ["1021"], numaNode: [0, 1]}}
    provision:
    - {select: {linkType: [infiniband], vendor: ["15b3"], function: [0], pf: ["0000:03:00.0"]}, vfs: 8}
    - {select: {}, vfs: 4, guid: derived}
    """

    configuration = parse(text, "node.yaml")

    assert configuration.rails is None
    assert configuration.rail_select == PfSelector(pf_device=("1021",), numa_node=(0, 1))
    assert configuration.provision == (
        ProvisionBySelector(
            8,
            PfSelector(link_type=("infiniband",), vendor=("15b3",), function=(0,), pf=(PciAddress(0, 3, 0, 0),)),
        ),
        ProvisionBySelector(4, PfSelector()),
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "is not YAML"),
        ("a: b: c", "is not YAML"),
        ("\ta: 1", "is not YAML"),
        ("a: 1\n---\nb: 2", "is not YAML"),
        ("? [1]\n: 2", "is not YAML"),
        ("a: !!python/object/apply:os.system [id]", "is not YAML"),
        ("a: \x00", "is not YAML"),
        pytest.param("[" * 2_000, "is nested too deeply", marks=pytest.mark.slow),
        ("[]", "the document is []; it should be a mapping"),
        ("words", "the document is 'words'; it should be a mapping"),
        ("false", "the document is false; it should be a mapping"),
    ],
    ids=lambda value: repr(value[:24]),
)
def test_text_that_is_no_yaml_mapping_is_refused(text: str, words: str) -> None:
    message = refusal(text)

    assert message.startswith("node.yaml")
    assert words in message


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: b: hunter2", "line 1, column 5: mapping values are not allowed here"),
        (
            "a: {password: hunter2\nb: 1\n",
            "line 2, column 2: while parsing a flow mapping expected ',' or '}', but got ':'",
        ),
        ('a: {password: "hunter2\n', "line 2, column 1: "),
        ("a:\n  password: !hunter2 x", "line 2, column 13: could not determine a constructor for the tag (left out)"),
        ("a: !hunter2's\"! x", "line 1, column "),
        ("a: !hunter2!b x", "line 1, column 4: while parsing a node found undefined tag handle (left out)"),
        ("a: {password: *hunter2 }", "line 1 has an alias"),
        ("a: [&hunter2 x, &hunter2 y]", "line 1, column 17: found duplicate anchor (left out)"),
        (
            "a: @hunter2",
            "line 1, column 4: while scanning for the next token found character '@' that cannot start any token",
        ),
        ("host: {}\na: !!int hunter2", "line 2, column 4: the value does not fit its tag"),
        ("a:\n- !!bool hunter2", "line 2, column 3: the value does not fit its tag"),
        ("a: !!float hunter2", "line 1, column 4: the value does not fit its tag"),
        ("a: 2026-99-99 # hunter2", "line 1, column 4: the value does not fit its tag"),
        ("a:\n  b: hunter2\x00", "line 2, column 13: a character has the code 0, which YAML does not allow"),
        ("a: b\nhunter2\nb: c", "line 3, column 1: while scanning a simple key could not find expected ':'"),
    ],
)
def test_message_about_broken_yaml_has_its_place_and_no_word_of_the_file(text: str, place: str) -> None:
    message = refusal(text)

    assert place in message
    assert "hunter2" not in message


def test_message_about_a_huge_value_is_short() -> None:
    assert len(refusal(f"primary: {'x' * 100_000}")) < 200


@given(st.text(alphabet="abcdehilmnoprstuvwkx:{}[],-'\" \n05/"))
def test_parse_raises_nothing_but_misconfigured(text: str) -> None:
    try:
        configuration = parse(text, "node.yaml")
    except Misconfigured:
        return
    assert isinstance(configuration, Configuration)


def test_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "node.yaml").write_text(EVERYTHING)

    assert load(tmp_path / "node.yaml") == parse(EVERYTHING, "node.yaml")


def test_default_path_may_be_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configurations, "DEFAULT_PATH", tmp_path / "node.yaml")

    assert load(tmp_path / "node.yaml") == Configuration()


def test_default_path_that_leads_to_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configurations, "DEFAULT_PATH", tmp_path / "node.yaml")
    (tmp_path / "node.yaml").symlink_to(tmp_path / "..data" / "node.yaml")

    with pytest.raises(Misconfigured, match=rf"the node configuration {tmp_path / 'node.yaml'} does not exist"):
        load(tmp_path / "node.yaml")


def test_file_without_an_end_is_refused_after_some_bytes() -> None:
    with pytest.raises(Misconfigured, match="/dev/zero has more than 4 MiB, so it is no node configuration"):
        load(Path("/dev/zero"))


def test_any_other_file_that_is_absent_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=rf"the node configuration {tmp_path / 'other.yaml'} does not exist"):
        load(tmp_path / "other.yaml")


@pytest.mark.parametrize("content", [None, b"\xff\xfe\xfd"], ids=["a folder", "not UTF-8"])
def test_message_about_an_unreadable_file_has_its_path(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "node.yaml"
    path.mkdir() if content is None else path.write_bytes(content)

    with pytest.raises(Misconfigured, match=rf"^{path} cannot be read: "):
        load(path)


@pytest.mark.parametrize(
    "text",
    [
        "primary: 2026-99-99",
        "primary: !!timestamp x",
        f"networks: {{default: {{mtu: {'9' * 5000}}}}}",
        "timeouts: {add: 80000m}",
    ],
    ids=["no date", "no timestamp", "huge number", "50 days"],
)
def test_odd_value_is_misconfigured(text: str) -> None:
    with pytest.raises(Misconfigured):
        parse(text, "node.yaml")


def test_limit_with_an_unknown_pool_is_refused() -> None:
    text = "limits: {team-a: {pools: [rdma/ib_vf, rdma/gone]}}"

    assert refusal(text).endswith(
        "limits.team-a.pools[1] is 'rdma/gone'; it should be a name that 'pools' defines: rdma/ib_vf"
    )


@pytest.mark.parametrize(("length", "accepted"), [(253, True), (254, False)])
def test_name_of_a_priority_class_is_as_long_as_an_object_may_be_named(length: int, accepted: bool) -> None:
    text = f"admission: {{priorityClass: {'a' * length}}}"

    if accepted:
        assert parse(text, "node.yaml").admission.priority_class == "a" * length
    else:
        assert "it should be the name of a PriorityClass" in refusal(text)


def test_static_range_that_overlaps_a_slice_is_refused() -> None:
    text = "networks: {fixed: {ipam: {type: static, range: 10.56.7.0/24}}}"

    assert "networks.fixed.ipam.range 10.56.7.0/24 overlap" in refusal(text)


def test_alias_is_refused_before_its_values_fill_the_memory() -> None:
    lines = [f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]" for n in range(30)]

    message = refusal("\n".join(["a0: &a0 x", *lines]))

    assert message.startswith("node.yaml: line 2 has an alias; aliases are not allowed, write the value itself")


@pytest.mark.parametrize(
    "text", ["rdma: !!bool x", 'rdma: !!int ""', "rdma: !!timestamp x", "rdma: " + "1:" * 200 + "1.5"]
)
def test_value_that_does_not_fit_its_tag_is_refused(text: str) -> None:
    assert "is not YAML" in refusal(text) or "it should be" in refusal(text)


def test_file_longer_than_a_config_map_is_refused() -> None:
    assert "it should have at most 1048576, as a ConfigMap" in refusal("#" * (1 << 20) + "\n")


def test_key_that_is_twice_in_a_mapping_is_refused() -> None:
    message = refusal("rails: auto\nhost:\n  root: /a\n  root: /b")

    assert message == "node.yaml: the key 'root' is at line 3 and again at line 4; remove one of them"


def test_number_with_more_digits_than_python_prints_is_refused() -> None:
    message = refusal(f"rails: [0x{'f' * 5000}]")

    assert message.startswith("node.yaml: rails[0] is a number that is too long to print; it should be a PCI address")


def test_configuration_page_shows_every_key() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (shown,) = (block for block in blocks if "NodeConfiguration" in block)
    known = refusal("unknown: 1").partition("known here: ")[2]

    parse(shown, PAGE.name)
    assert set(yaml.safe_load(shown)) == set(known.split(", "))
