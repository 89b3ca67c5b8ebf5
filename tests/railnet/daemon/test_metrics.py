"""What /metrics says, and that its labels have few values."""

from dataclasses import replace

from deviceplugin.devices import OfferedVf
from railnet.daemon.metrics import Gauges, Metrics
from railnet.vf.guid import Guid
from tests.deviceplugin.builders import a_vf, an_rdma_device

# Of a node without pools, rails and cards.
NOTHING = Gauges(dict, dict, int, dict, dict, dict, dict, str)


def lines(metrics: Metrics, name: str, gauges: Gauges = NOTHING) -> list[str]:
    """Give the samples of one family."""
    return [line for line in metrics.text(gauges).splitlines() if line.startswith(name)]


def test_every_metric_family_has_its_type_before_any_request() -> None:
    assert [line.split()[2:] for line in Metrics().text(NOTHING).splitlines() if line.startswith("# TYPE")] == [
        ["railnet_cni_seconds", "histogram"],
        ["railnet_cni_requests_total", "counter"],
        ["railnet_cni_queue", "gauge"],
        ["railnet_vfs", "gauge"],
        ["railnet_rail_active", "gauge"],
        ["railnet_lost_rails", "gauge"],
        ["railnet_hung_reads", "gauge"],
        ["railnet_hung_writes", "gauge"],
        ["railnet_leaks_total", "counter"],
        ["railnet_daemon_restarts_total", "counter"],
        ["railnet_registrations_total", "counter"],
    ]
    assert lines(Metrics(2), "railnet_") == ["railnet_cni_queue 0", "railnet_daemon_restarts_total 2"]


def test_requests_are_counted_by_verb_and_code() -> None:
    metrics = Metrics()
    for code in (0, 0, 11, None):
        metrics.served("ADD", code, 0.02)

    assert lines(metrics, "railnet_cni_requests_total") == [
        'railnet_cni_requests_total{verb="ADD",code="0"} 2',
        'railnet_cni_requests_total{verb="ADD",code="11"} 1',
        'railnet_cni_requests_total{verb="ADD",code="gone"} 1',
    ]


def test_unknown_codes_of_delegates_share_one_label() -> None:
    metrics = Metrics()
    for code in range(1000, 2000):
        metrics.served("ADD", code, 0.02)
    metrics.served("ADD", -7, 0.02)

    assert lines(metrics, "railnet_cni_requests_total") == ['railnet_cni_requests_total{verb="ADD",code="other"} 1001']


def test_stages_are_a_cumulative_histogram_in_seconds() -> None:
    metrics = Metrics()
    for seconds in (0.005, 0.02, 70.0):
        metrics.stage("ADD", "delegate", seconds)

    found = lines(metrics, 'railnet_cni_seconds_bucket{verb="ADD",stage="delegate"')
    counts = {line.split('le="')[1].split('"')[0]: int(line.split()[-1]) for line in found}
    assert (counts["0.005"], counts["0.01"], counts["0.025"], counts["60"], counts["+Inf"]) == (1, 1, 2, 2, 3)
    assert lines(metrics, "railnet_cni_seconds_count") == ['railnet_cni_seconds_count{verb="ADD",stage="delegate"} 3']
    assert lines(metrics, "railnet_cni_seconds_sum") == ['railnet_cni_seconds_sum{verb="ADD",stage="delegate"} 70.025']


def test_request_is_in_the_histogram_as_a_whole() -> None:
    metrics = Metrics()
    metrics.served("DEL", 0, 0.3)

    assert lines(metrics, "railnet_cni_seconds_sum") == ['railnet_cni_seconds_sum{verb="DEL",stage="all"} 0.3']


def test_vfs_are_counted_by_state_and_reason() -> None:
    unset = an_rdma_device(1, node_guid=Guid(0))
    offers = {
        "rdma/ib_vf": [
            (OfferedVf(a_vf(), 0, None), False),
            (OfferedVf(a_vf(), 0, None), False),
            (OfferedVf(a_vf(), 0, None), True),
            (OfferedVf(a_vf(driver=None), 0, "why"), False),
            (OfferedVf(a_vf(rdma=None), 0, "why"), False),
            (OfferedVf(a_vf(rdma=unset), 0, "why"), False),
            (OfferedVf(a_vf(netdev=None), 0, "why"), False),
            (OfferedVf(a_vf(), 0, "the port of its PF"), False),
            (OfferedVf(a_vf(), None, "its card has moved"), False),
        ],
        "sriov/ethernet": [(OfferedVf(a_vf(rdma=None), 0, "no carrier", rdma=False), False)],
    }

    vfs = lines(Metrics(), "railnet_vfs", replace(NOTHING, vfs=lambda: offers))
    found = {line.split("{")[1].split("}")[0]: int(line.split()[-1]) for line in vfs}
    assert found == {
        'pool="rdma/ib_vf",state="attached",reason=""': 1,
        'pool="rdma/ib_vf",state="free",reason=""': 2,
        'pool="rdma/ib_vf",state="unhealthy",reason="driver"': 1,
        'pool="rdma/ib_vf",state="unhealthy",reason="rdma"': 1,
        'pool="rdma/ib_vf",state="unhealthy",reason="guid"': 1,
        'pool="rdma/ib_vf",state="unhealthy",reason="netdev"': 1,
        'pool="rdma/ib_vf",state="unhealthy",reason="port"': 1,
        'pool="rdma/ib_vf",state="unhealthy",reason="rail"': 1,
        'pool="sriov/ethernet",state="unhealthy",reason="port"': 1,
    }


def test_rails_are_active_or_not() -> None:
    gauges = replace(NOTHING, rails=lambda: {0: True, 10: False, 2: True})

    assert sorted(lines(Metrics(), "railnet_rail_active", gauges)) == [
        'railnet_rail_active{rail="0"} 1',
        'railnet_rail_active{rail="10"} 0',
        'railnet_rail_active{rail="2"} 1',
    ]


def test_leaks_registrations_and_queue_are_exported() -> None:
    metrics = Metrics()
    for kind in ("rails", "host-local", "host-local"):
        metrics.took_back(kind)
    gauges = replace(NOTHING, registrations=lambda: {"rdma/ib_vf": 2}, queue=lambda: 7)

    assert lines(metrics, "railnet_leaks_total") == [
        'railnet_leaks_total{kind="host-local"} 2',
        'railnet_leaks_total{kind="rails"} 1',
    ]
    assert lines(metrics, "railnet_registrations_total", gauges) == [
        'railnet_registrations_total{resource="rdma/ib_vf"} 2'
    ]
    assert lines(metrics, "railnet_cni_queue", gauges) == ["railnet_cni_queue 7"]
