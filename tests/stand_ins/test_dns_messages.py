"""Bytes of queries and of their replies."""

import pytest
from dnslib import EDNS0, QTYPE, RCODE, DNSRecord

from tests.stand_ins import dns_messages
from tests.stand_ins.dns_records import TTL_SECONDS, ClusterRecords
from tests.stand_ins.test_dns_records import RECORDS, endpoint, endpoints, service

MANY = 200
CROWD = ClusterRecords(
    [service("crowd", "None")],
    [endpoints("crowd", *(endpoint(f"10.56.{index // 250}.{index % 250}") for index in range(MANY)))],
    ["ml"],
)


def asked(name: str, kind: str = "A", records: ClusterRecords | None = RECORDS) -> DNSRecord:
    return DNSRecord.parse(dns_messages.reply(DNSRecord.question(name, kind).pack(), records))


def test_reply_repeats_id_and_question_as_they_were_written() -> None:
    query = DNSRecord.question("Net1.ML.svc.cluster.local")
    found = DNSRecord.parse(dns_messages.reply(query.pack(), RECORDS))

    assert (found.header.id, found.header.qr, found.header.aa, found.header.ra) == (query.header.id, 1, 1, 0)
    assert str(found.q.qname) == "Net1.ML.svc.cluster.local."
    assert [(str(one.rname), str(one.rdata), one.ttl) for one in found.rr] == [
        ("Net1.ML.svc.cluster.local.", "10.56.0.1", TTL_SECONDS),
        ("Net1.ML.svc.cluster.local.", "10.56.0.2", TTL_SECONDS),
    ]


def test_ipv6_address_is_an_aaaa_record() -> None:
    (one,) = asked("zero.v6.ml.svc.cluster.local", "AAAA").rr

    assert (one.rtype, str(one.rdata)) == (QTYPE.AAAA, "fd00:56::")


@pytest.mark.parametrize(
    ("name", "kind", "code", "authority"),
    [
        ("nothing.ml.svc.cluster.local", "A", "NXDOMAIN", ["cluster.local."]),
        ("net1.ml.svc.cluster.local", "AAAA", "NOERROR", ["cluster.local."]),
        ("net1.ml.svc.cluster.local", "MX", "NOERROR", ["cluster.local."]),
        ("nothing.ml.svc.cluster.local", "MX", "NXDOMAIN", ["cluster.local."]),
        ("example.com", "A", "NXDOMAIN", []),
    ],
)
def test_absence_is_said_with_the_zones_soa_record(name: str, kind: str, code: str, authority: list[str]) -> None:
    found = asked(name, kind)

    assert (RCODE[found.header.rcode], found.rr) == (code, [])
    assert [str(one.rname) for one in found.auth] == authority
    assert [one.ttl for one in found.auth] == [TTL_SECONDS] * len(authority)


def test_no_name_is_denied_before_the_api_server_has_answered() -> None:
    assert RCODE[asked("net1.ml.svc.cluster.local", records=None).header.rcode] == "SERVFAIL"


@pytest.mark.parametrize(
    ("takes_bytes", "answers"), [(0, 29), (1232, 73), (4096, MANY)], ids=["without EDNS0", "1232 bytes", "4096 bytes"]
)
def test_reply_is_cut_to_what_the_client_takes_and_says_so(takes_bytes: int, answers: int) -> None:
    query = DNSRecord.question("crowd.ml.svc.cluster.local")
    if takes_bytes:
        query.add_ar(EDNS0(udp_len=takes_bytes))
    packed = dns_messages.reply(query.pack(), CROWD)
    found = DNSRecord.parse(packed)

    assert len(packed) <= (takes_bytes or 512)
    assert (len(found.rr), found.header.tc) == (answers, int(answers < MANY))
    assert [one.edns_len for one in found.ar] == [takes_bytes] * bool(takes_bytes)


def test_reply_over_tcp_is_complete() -> None:
    packed = dns_messages.reply(DNSRecord.question("crowd.ml.svc.cluster.local").pack(), CROWD, dns_messages.TCP_BYTES)

    assert len(DNSRecord.parse(packed).rr) == MANY


@pytest.mark.parametrize("data", [b"", b"\0" * 11, DNSRecord.question("a.b").reply().pack(), b"\0" * 12])
def test_bytes_that_are_no_query_are_refused(data: bytes) -> None:
    with pytest.raises(dns_messages.NotAQuery):
        dns_messages.reply(data, RECORDS)
