"""Addresses for rails, from flannel's file and the journal."""

import os
from collections.abc import Iterable
from dataclasses import replace
from errno import EMFILE, ENFILE, ENOMEM
from ipaddress import ip_interface, ip_network
from pathlib import Path

import pytest

from cni.attachment import local_ipam
from cni.attachment.journal import Journal
from cni.attachment.local_ipam import LocalIpam
from cni.error_translation import as_cni_error
from cni.host import errors
from railnet.errors import Misconfigured, NoAddress
from railnet.vf import permitted_networks
from railnet.vf.address_slice import IpNetwork
from railnet.vf.attachment_plan import assign
from railnet.vf.inventory import Inventory
from railnet.vf.pci_address import PciAddress
from railnet.vf.permitted_networks import (
    ChosenNetwork,
    NetworkIpam,
    Networks,
    NoIpam,
    PluginIpam,
    SliceIpam,
    StaticIpam,
)
from railnet.vf.rail_memory import RailNumbers, RememberedRail
from railnet.vf.steps import IpInterface, Route
from tests.deviceplugin.builders import a_pf, a_vf, two_rails
from tests.railnet.vf.builders import a_record, an_attachment

RANGE = ip_network("10.56.0.0/16")
NODE = two_rails()
ALL = [vf.address for pf in NODE.pfs for vf in pf.vfs]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal", tmp_path / "quarantine")


class Network:
    """One network on a node with flannel's file."""

    def __init__(self, folder: Path, ipam: NetworkIpam, subnet: str = "10.244.3.1/24") -> None:
        text = f"FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET={subnet}\nFLANNEL_MTU=1450\n"
        (folder / "subnet.env").write_text(text)
        self.addresses, self.network = LocalIpam(folder / "subnet.env"), permitted_networks.Network(ipam=ipam)

    def check(self, node: Inventory, *, of: Iterable[PciAddress] | None = None) -> None:
        vfs = {vf.address for vf in node.vfs()} if of is None else set(of)
        self.addresses.check(Networks({"default": self.network}), node, vfs)


def slices(folder: Path, range_: IpNetwork = RANGE, subnet: str = "10.244.3.1/24") -> Network:
    return Network(folder, SliceIpam(range_), subnet)


def given(
    of: Network, journal: Journal, vfs: list[PciAddress], node: Inventory = NODE, static: tuple[IpInterface, ...] = ()
) -> list[str]:
    found = of.addresses.give(ChosenNetwork(of.network, static), assign(node, vfs), node, journal)
    return [", ".join(map(str, found[vf].addresses)) for vf in vfs]


def routes(of: Network, journal: Journal, vfs: list[PciAddress], node: Inventory = NODE) -> list[tuple[Route, ...]]:
    found = of.addresses.give(ChosenNetwork(of.network), assign(node, vfs), node, journal)
    return [found[vf].routes for vf in vfs]


def test_each_rail_has_addresses_of_its_own_prefix(tmp_path: Path, journal: Journal) -> None:
    # The builder's VFs have the indexes 3 and 2 on rail 0, and 1 and 0 on rail 1.
    assert given(slices(tmp_path), journal, ALL) == [
        "10.56.1.132/17",
        "10.56.1.131/17",
        "10.56.129.130/17",
        "10.56.129.129/17",
    ]


def test_other_rails_are_reached_through_the_first_link(tmp_path: Path, journal: Journal) -> None:
    to_all = (Route(RANGE, None),)

    assert routes(slices(tmp_path), journal, ALL[2:3]) == [to_all]
    assert routes(slices(tmp_path), journal, [ALL[0], ALL[2]]) == [to_all, ()]


def test_there_is_no_route_if_there_is_no_other_rail(tmp_path: Path, journal: Journal) -> None:
    one_rail = Inventory(NODE.pfs[:1])

    assert routes(slices(tmp_path), journal, ALL[:2], one_rail) == [(), ()]


def test_other_rails_may_be_other_nodes_alone(tmp_path: Path, journal: Journal) -> None:
    of_two = Network(tmp_path, SliceIpam(RANGE, rails=2))

    assert routes(of_two, journal, ALL[:1], Inventory(NODE.pfs[:1])) == [(Route(RANGE, None),)]


def test_vf_gets_the_same_address_again_while_it_is_free(tmp_path: Path, journal: Journal) -> None:
    addresses = slices(tmp_path)

    assert given(addresses, journal, ALL[:1]) == given(addresses, journal, ALL[:1])


def test_address_of_a_live_sandbox_is_not_given_again(tmp_path: Path, journal: Journal) -> None:
    journal.write(a_record(an_attachment(addresses=(ip_interface("10.56.1.132/17"),))))

    assert given(slices(tmp_path), journal, ALL[:1]) == ["10.56.1.133/17"]


def test_vfs_of_one_sandbox_do_not_share_an_address(tmp_path: Path, journal: Journal) -> None:
    vfs = [a_vf("0000:03:00.1", 1), replace(a_vf("0000:03:00.2", 2), index=0)]
    node = Inventory((a_pf(*vfs),))

    assert given(slices(tmp_path), journal, [vf.address for vf in vfs], node) == ["10.56.3.1/16", "10.56.3.2/16"]


def test_lease_is_read_again_for_each_request(tmp_path: Path, journal: Journal) -> None:
    addresses = slices(tmp_path)
    slices(tmp_path, subnet="10.244.5.1/24")

    assert given(addresses, journal, ALL[3:]) == ["10.56.130.129/17"]


def test_lease_is_read_on_the_host_also_when_its_folder_is_made_anew(tmp_path: Path, journal: Journal) -> None:
    """A mount of the folder would go on showing the removed one; a link in the path is followed as on the host."""
    host, folder = tmp_path / "host", tmp_path / "host/run/flannel"
    folder.mkdir(parents=True)
    (host / "var").mkdir()
    (host / "var/run").symlink_to("/run")
    first = slices(folder)
    first.addresses = LocalIpam(Path("/var/run/flannel/subnet.env"), host)
    before = given(first, journal, ALL[3:])

    folder.rename(tmp_path / "removed")
    with pytest.raises(NoAddress, match="is flanneld running on this node"):
        given(first, journal, ALL[3:])
    folder.mkdir()
    slices(folder, subnet="10.244.5.1/24")

    assert (before, given(first, journal, ALL[3:])) == (["10.56.129.129/17"], ["10.56.130.129/17"])


def test_lease_that_only_the_daemons_own_namespace_has_is_read_there(tmp_path: Path, journal: Journal) -> None:
    mounted, host = slices(tmp_path), tmp_path / "host"
    host.mkdir()
    mounted.addresses = LocalIpam(tmp_path / "subnet.env", host)

    assert given(mounted, journal, ALL[3:]) == ["10.56.129.129/17"]


def test_there_is_no_address_when_all_are_taken(tmp_path: Path, journal: Journal) -> None:
    addresses = slices(tmp_path, ip_network("10.56.0.0/21"))  # 2 addresses for each of 2 rails and 256 nodes
    taken = [ip_interface("10.56.0.13/22"), ip_interface("10.56.0.14/22")]
    journal.write(a_record(an_attachment(addresses=tuple(taken))))

    with pytest.raises(NoAddress, match=r"all 2 addresses of 10\.56\.0\.12/30 are taken"):
        given(addresses, journal, ALL[:1])


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "does not exist; is flanneld running"), (b"\xff\xfe", "cannot be read"), (b"", "no FLANNEL_NETWORK")],
    ids=["missing", "not text", "empty"],
)
def test_there_is_no_address_when_flannels_file_is_odd(tmp_path, journal, content: bytes | None, words: str) -> None:
    addresses = slices(tmp_path)
    (tmp_path / "subnet.env").unlink()
    (tmp_path / "subnet.env").write_bytes(content) if content is not None else None

    with pytest.raises(NoAddress, match=words):
        given(addresses, journal, ALL)


@pytest.mark.parametrize("number", [EMFILE, ENFILE, ENOMEM])
def test_lack_of_the_daemons_own_is_not_blamed_on_flanneld(
    tmp_path: Path, journal: Journal, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(root: Path, path: str) -> bytes:
        raise OSError(number, os.strerror(number), path)

    addresses = slices(tmp_path)
    monkeypatch.setattr(local_ipam, "read_below", lacking)

    with pytest.raises(OSError, match=os.strerror(number)) as raised:
        given(addresses, journal, ALL)
    assert (raised.value.errno, as_cni_error(raised.value).code) == (number, errors.IO)


def test_check_passes_when_every_vf_can_have_an_address(tmp_path: Path) -> None:
    slices(tmp_path, ip_network("10.56.0.0/21")).check(NODE)


def test_check_refuses_fewer_addresses_than_vfs_with_the_numbers(tmp_path: Path) -> None:
    three = a_pf(*(a_vf(f"0000:83:00.{number}", number) for number in (1, 2, 3)), address="0000:83:00.0")

    with pytest.raises(Misconfigured) as raised:
        slices(tmp_path, ip_network("10.56.0.0/21")).check(Inventory((NODE.pfs[0], three)))

    assert str(raised.value) == (
        "networks.default: range 10.56.0.0/21 gives this node 10.56.4.12/30 on rail 1: 2 addresses for the 3 VFs of 0000:83:00.0; "
        "use a larger range or fewer VFs"
    )


@pytest.mark.parametrize(
    "ipam", [SliceIpam(ip_network("10.56.0.0/21")), SliceIpam(RANGE, rails=1)], ids=["too many VFs", "a rail too many"]
)
def test_check_needs_no_addresses_for_a_card_whose_vfs_no_pool_offers(tmp_path: Path, ipam: NetworkIpam) -> None:
    three = a_pf(*(a_vf(f"0000:83:00.{number}", number) for number in (1, 2, 3)), address="0000:83:00.0")

    Network(tmp_path, ipam).check(Inventory((NODE.pfs[0], three)), of=ALL[:2])


def test_check_needs_no_lease_if_there_is_no_pf(tmp_path: Path) -> None:
    network = slices(tmp_path)
    (tmp_path / "subnet.env").unlink()

    network.check(Inventory())


def test_range_is_split_among_the_configured_number_of_rails(tmp_path: Path, journal: Journal) -> None:
    network = Network(tmp_path, SliceIpam(RANGE, rails=8))

    assert given(network, journal, [ALL[1], ALL[3]]) == ["10.56.0.99/19", "10.56.32.97/19"]


def test_more_rails_than_the_configured_number_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"ipam\.rails is 1, but this node has 2 rails"):
        Network(tmp_path, SliceIpam(RANGE, rails=1)).check(NODE)


@pytest.mark.parametrize("ipam", [NoIpam(), PluginIpam({"type": "host-local"})], ids=["none", "plugin"])
def test_networks_without_local_addresses_give_none_and_need_no_lease(tmp_path, journal, ipam: NetworkIpam) -> None:
    network = Network(tmp_path, ipam)
    (tmp_path / "subnet.env").unlink()

    network.check(NODE)
    assert given(network, journal, ALL[:2]) == ["", ""]


def test_static_addresses_are_given_in_rail_order(tmp_path: Path, journal: Journal) -> None:
    static = (ip_interface("10.60.0.5/24"), ip_interface("10.61.0.5/24"))

    assert given(Network(tmp_path, StaticIpam()), journal, [ALL[0], ALL[2]], static=static) == list(map(str, static))


def test_static_address_of_another_sandbox_is_refused(tmp_path: Path, journal: Journal) -> None:
    address = ip_interface("10.60.0.5/24")
    journal.write(a_record(an_attachment(addresses=(address,))))

    with pytest.raises(NoAddress, match=r"10\.60\.0\.5, which the pod asks for, belongs to another pod"):
        given(Network(tmp_path, StaticIpam()), journal, ALL[:1], static=(address,))


def test_static_address_of_the_node_itself_is_refused(tmp_path: Path, journal: Journal) -> None:
    with pytest.raises(NoAddress, match=r"127\.0\.0\.1, which the pod asks for, belongs to this node itself"):
        given(Network(tmp_path, StaticIpam()), journal, ALL[:1], static=(ip_interface("127.0.0.1/8"),))


def test_second_card_keeps_its_prefix_without_the_first_card(tmp_path: Path, journal: Journal) -> None:
    numbers = RailNumbers(tuple(RememberedRail(pf.address) for pf in NODE.pfs))
    missing = replace(NODE, pfs=NODE.pfs[1:], numbers=numbers)

    assert given(slices(tmp_path), journal, ALL[2:], missing) == ["10.56.129.130/17", "10.56.129.129/17"]


def test_no_address_is_given_while_the_rails_are_not_certain(tmp_path: Path, journal: Journal) -> None:
    unsettled = replace(NODE, numbers=RailNumbers((), "a card may be missing"))
    network = slices(tmp_path)

    network.check(unsettled)  # the daemon serves
    with pytest.raises(Misconfigured, match="a card may be missing"):
        given(network, journal, ALL[:1], unsettled)
    assert given(Network(tmp_path, NoIpam()), journal, ALL[:1], unsettled) == [""]
