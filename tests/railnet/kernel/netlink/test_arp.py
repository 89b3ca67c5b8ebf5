"""ARP announcements: their bytes on Ethernet and on InfiniBand."""

from ipaddress import IPv4Address

from railnet.kernel.netlink.arp import announcement
from railnet.kernel.netlink.rtnetlink import Hardware

ADDRESS = IPv4Address("10.56.3.1")
# QPN and GID of an IPoIB link, RFC 4391 section 9.1.1; its broadcast group with partition 0x8001, section 4
IPOIB = bytes.fromhex("80000048 fe80000000000000 ba599f0301f98f86")
GROUP = bytes.fromhex("00ffffff ff12401b8001000000000000 ffffffff")


def test_announcement_on_ethernet_is_a_request_for_the_senders_own_address() -> None:
    link = Hardware(7, 1, 0, bytes.fromhex("020000000001"), b"\xff" * 6)

    assert announcement(link, ADDRESS).hex() == "00010800060400010200000000010a3803010000000000000a380301"


def test_announcement_on_infiniband_has_addresses_of_twenty_bytes() -> None:
    found = announcement(Hardware(7, 32, 0, IPOIB, GROUP), ADDRESS).hex()

    assert found == "0020080014040001" + IPOIB.hex() + "0a380301" + "00" * 20 + "0a380301"
