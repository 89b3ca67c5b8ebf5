"""DNS messages (RFC 1035) of the stand-in for CoreDNS: from a query's bytes to the reply's. `dns_records` decides the answer."""

from typing import Final

from dnslib import AAAA, EDNS0, QTYPE, RCODE, RR, SOA, A, DNSError, DNSRecord

from tests.stand_ins.dns_records import TTL_SECONDS, ZONE, ClusterRecords

TCP_BYTES: Final = 65535
_UDP_BYTES = 512  # RFC 1035, section 4.2.1: of a client that does not say with EDNS0 that it takes more
_VERSIONS = {QTYPE.A: 4, QTYPE.AAAA: 6}
_DATA = {QTYPE.A: A, QTYPE.AAAA: AAAA}
# plugin/backend_lookup.go, SOA: refresh, retry, expire, minimum TTL
_SOA_SECONDS = (7200, 1800, 86400, TTL_SECONDS)


class NotAQuery(ValueError):
    """The bytes are not a DNS query with one question."""


def reply(query: bytes, records: ClusterRecords | None, most_bytes: int = 0) -> bytes:
    """Answer a query.

    Args:
        query: the message of a client.
        records: what the cluster has; None while it is not known yet, which is answered with SERVFAIL.
        most_bytes: how long the reply may be; 0 over UDP, where the client says it. A longer one loses answers and gets TC.

    Raises:
        NotAQuery: there is nothing to answer.
    """
    try:
        request = DNSRecord.parse(query)
    except DNSError as error:
        raise NotAQuery(str(error)) from None
    if request.header.qr or len(request.questions) != 1:
        raise NotAQuery("a reply, or a message without exactly one question")
    size = request.ar[0].edns_len if request.ar and request.ar[0].rtype == QTYPE.OPT else 0
    made = _answered(request, records)
    if size:
        made.add_ar(EDNS0(udp_len=size))
    return _shortened(made, most_bytes or max(size, _UDP_BYTES))


def _answered(request: DNSRecord, records: ClusterRecords | None) -> DNSRecord:
    made = request.reply(aa=1, ra=0)
    if records is None:
        made.header.rcode = RCODE.SERVFAIL
        return made
    name, kind = request.q.qname, request.q.qtype
    answer = records.answer(str(name), _VERSIONS.get(kind, 0))
    made.header.rcode = answer.outcome.value
    made.header.aa = int(answer.authoritative)
    for address in answer.addresses:
        made.add_answer(RR(name, kind, rdata=_DATA[kind](address), ttl=TTL_SECONDS))
    if not answer.addresses and answer.authoritative:
        made.add_auth(
            RR(ZONE, QTYPE.SOA, ttl=TTL_SECONDS, rdata=SOA(f"ns.dns.{ZONE}", f"hostmaster.{ZONE}", (1, *_SOA_SECONDS)))
        )
    return made


def _shortened(made: DNSRecord, most_bytes: int) -> bytes:
    packed: bytes = made.pack()
    if len(packed) <= most_bytes:
        return packed
    answers, made.rr, made.header.tc = made.rr, [], 1
    least = len(made.pack())
    each = (len(packed) - least) / len(answers)  # all have the same name and type
    made.rr = answers[: int((most_bytes - least) / each)]
    return bytes(made.pack())
