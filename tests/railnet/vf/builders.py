"""Builders of attachments and records for tests, and hypothesis strategies for the values of `vf`."""

from dataclasses import replace
from ipaddress import ip_interface, ip_network
from typing import Any

from hypothesis import strategies as st

from railnet.vf.guid import Guid
from railnet.vf.inventory import DeviceNode
from railnet.vf.pci_address import PciAddress
from railnet.vf.record import Attachment, Netns, Record, RecordedIpam, SandboxPod
from railnet.vf.steps import Ipv4Settings, RailRouting, Route

FIRST = PciAddress.parse("0000:03:00.1")
SECOND = PciAddress.parse("0000:83:00.1")

pci_addresses = st.builds(
    PciAddress,
    st.integers(0, 0xFFFFFFFF),
    st.integers(0, 0xFF),
    st.integers(0, 0x1F),
    st.integers(0, 7),
)
guids = st.builds(Guid, st.integers(0, (1 << 64) - 1))
interfaces = st.builds(lambda address, bits: ip_interface((address, bits)), st.ip_addresses(), st.integers(0, 32))

attachments = st.builds(
    Attachment,
    ifname=st.text(max_size=15),
    vf=pci_addresses,
    rail=st.integers(0, 127),
    link_layer=st.sampled_from(["InfiniBand", "Ethernet"]),
    guid=st.none() | guids,
    mtu=st.integers(0),
    addresses=st.lists(interfaces, max_size=3).map(tuple),
    host_ifname=st.text(max_size=15),
    rdma=st.none() | st.text(max_size=15),
    uverbs=st.none() | st.builds(DeviceNode, st.text(), st.integers(0), st.integers(0)),
    routes=st.lists(
        st.builds(
            lambda address, bits, gateway: Route(ip_network((address, bits), strict=False), gateway),
            st.ip_addresses(),
            st.integers(0, 32),
            st.none() | st.ip_addresses(),
        ),
        max_size=2,
    ).map(tuple),
    routing=st.none()
    | st.builds(
        RailRouting,
        st.builds(Ipv4Settings, st.integers(0, 8), st.integers(0, 2), st.integers(0, 2)),
        st.integers(1, 0xFFFFFFFF),
        st.lists(st.ip_addresses(), max_size=2).map(tuple),
        st.just((Route(ip_network("10.56.0.0/16"), None),)),
    ),
)
file_names = st.text().filter(lambda name: not set(name) & set("/\0") and not name.startswith("."))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
records = st.builds(
    Record,
    container_id=file_names,
    ifname=file_names,
    netns=st.builds(Netns, st.text(), st.integers(0), st.integers(0)),
    pod=st.builds(SandboxPod, st.text(), st.text(), st.text()),
    stage=st.sampled_from(["planned", "attached", "detaching"]),
    attachments=st.lists(attachments, max_size=3).map(tuple),
    primary=st.dictionaries(st.text(), json_values, max_size=3),
    network=st.text(),
    ipam=st.none()
    | st.builds(
        RecordedIpam, st.dictionaries(st.text(), json_values, max_size=3), st.lists(st.text()).map(tuple), st.text()
    ),
    boot=st.text(),
)


def an_attachment(**changes: Any) -> Attachment:
    attachment = Attachment(
        ifname="net1",
        vf=FIRST,
        rail=0,
        link_layer="InfiniBand",
        guid=Guid.parse("ba59:9f03:01f9:8f86"),
        mtu=4092,
        addresses=(ip_interface("10.56.3.1/16"),),
        host_ifname="ibs5v0",
        rdma="mlx5_4",
        uverbs=DeviceNode("uverbs4", 231, 196),
    )
    return replace(attachment, **changes)


def a_record(*attachments: Attachment, **changes: Any) -> Record:
    record = Record(
        container_id="c0ffee",
        ifname="eth0",
        netns=Netns("/run/netns/cni-1", 4, 4026532300),
        pod=SandboxPod("ml", "train-0", "uid-1"),
        stage="planned",
        attachments=attachments,
        primary={"conf": {"name": "cbr0"}, "runtimeConfig": {}},
        boot="boot-1",
    )
    return replace(record, **changes)
