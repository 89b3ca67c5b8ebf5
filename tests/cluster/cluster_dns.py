"""What a test asks of the cluster's DNS, which is CoreDNS (`addons`), and the resolver of the site, to which CoreDNS forwards.

The site's resolver is CoreDNS, too, on the first node: it says of each name that there is none.
"""

from dnslib import DNSRecord

from tests.cluster.ground import DNS_ADDRESS, NODE_ADDRESS, RUN
from tests.cluster.process import Program, wait_until

_COREFILE = RUN / "site.corefile"
_RULES = f"""\
. {{
    bind {NODE_ADDRESS}
    template IN ANY . {{
        rcode NXDOMAIN
    }}
}}
"""
_START_SECONDS = 180.0
_QUERY_SECONDS = 30.0


class ClusterDns:
    """The site's resolver; a context of the cluster's names. Pods reach CoreDNS by its Service's address, as this does."""

    def __init__(self) -> None:
        self.site = Program(["coredns", f"-conf={_COREFILE}"], name="site-resolver")

    def start(self) -> None:
        """Start the site's resolver; returns at once."""
        _COREFILE.write_text(_RULES)
        self.site.start()

    def wait(self) -> None:
        """Wait until CoreDNS answers what the API server has."""
        wait_until(self._answers, _START_SECONDS, "CoreDNS to answer")

    def addresses(self, name: str) -> set[str]:
        """Return the IPv4 addresses of a name below `cluster.local`, as a pod gets them.

        Raises:
            OSError: there is no answer in time.
        """
        question = DNSRecord.question(f"{name}.cluster.local")
        answer = DNSRecord.parse(question.send(DNS_ADDRESS, 53, timeout=_QUERY_SECONDS))
        return {str(record.rdata) for record in answer.rr}

    def stop(self) -> None:
        self.site.stop()

    def _answers(self) -> bool:
        try:
            return bool(self.addresses("kubernetes.default.svc"))
        except OSError:
            return False
