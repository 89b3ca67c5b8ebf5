"""TF_CONFIG with names on net1: which addresses get them, and the messages if they cannot."""

import json
import re
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railnet.admission import tf_config as tf_config_module
from railnet.admission.review_configuration import Policy
from railnet.admission.tf_config import rewritten, with_own_port
from railnet.errors import Misconfigured
from railnet.jobs.net1_names import service
from railnet.vf.permitted_networks import Network, Networks, NoIpam
from tests.railnet.admission.reviewing import JsonObject, applied, ask, patch_of
from tests.railnet.admission.test_decision import a_pod

TF_CONFIG = '{"cluster":{"ps":["mnist-ps-0.ml.svc:2222"],"worker":["mnist-worker-0.ml.svc:2222"]},"task":{"type":"ps","index":0}}'
ON_NET1 = TF_CONFIG.replace(".ml.svc", ".mnist-net1.ml.svc")
_NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,80}[a-z0-9])?", fullmatch=True)


def a_task(rendezvous: str | None = "net1", value: str = TF_CONFIG, **changes: object) -> JsonObject:
    annotations = {} if rendezvous is None else {"railnet.io/rendezvous": rendezvous}
    pod = a_pod(annotations=annotations, **changes)
    pod["spec"]["containers"][0]["env"] = [{"name": "HOME", "value": "/"}, {"name": "TF_CONFIG", "value": value}]
    return pod


def tf_config(pod: JsonObject) -> str:
    [found] = [entry["value"] for entry in pod["spec"]["containers"][0]["env"] if entry["name"] == "TF_CONFIG"]
    return str(found)


@pytest.mark.parametrize(
    ("rendezvous", "expected"),
    [("net1", ON_NET1), ("eth0", TF_CONFIG), (None, TF_CONFIG)],
    ids=["net1", "eth0", "none"],
)
def test_names_are_on_net1_if_the_annotation_says_so(rendezvous: str | None, expected: str):
    pod = a_task(rendezvous)

    assert tf_config(applied(pod, patch_of(ask(pod)))) == expected


def test_client_that_creates_the_pod_is_warned_that_the_service_must_exist():
    [warning] = ask(a_task())["warnings"]

    assert "Service mnist-net1" in warning


def test_pod_that_has_the_names_already_causes_no_warning():
    pod = a_task()

    again = ask(applied(pod, patch_of(ask(pod))))

    assert "warnings" not in again
    assert patch_of(again) == []


@pytest.mark.parametrize(
    "address",
    [
        "10.1.2.3:2222",
        "[fd00::1]:2222",
        "fd00::1",
        "localhost:2222",
        "mnist-worker-0.mnist-net1.ml.svc:2222",
        "mnist-worker-0.mnist-net1:2222",
    ],
)
def test_address_without_a_task_name_or_on_net1_already_stays(address: str):
    value = json.dumps({"cluster": {"worker": [address]}})

    assert rewritten(value, "mnist") is value


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("mnist-worker-0:2222", "mnist-worker-0.mnist-net1:2222"),
        ("mnist-worker-0", "mnist-worker-0.mnist-net1"),
        ("mnist-worker-0.ml.svc.example.org:1", "mnist-worker-0.mnist-net1.ml.svc.example.org:1"),
    ],
    ids=["a bare name", "no port", "another cluster domain"],
)
def test_name_keeps_its_domain_and_port(address: str, expected: str):
    value = json.dumps({"cluster": {"worker": {"3": address}}, "rpc_layer": "grpc"})

    after = json.loads(rewritten(value, "mnist"))

    assert after == {"cluster": {"worker": {"3": expected}}, "rpc_layer": "grpc"}


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("mnist-ps-0.mnist:2222", "mnist-ps-0.mnist-net1:2222"),
        ("mnist-ps-0.mnist.ml:2222", "mnist-ps-0.mnist-net1.ml:2222"),
        ("mnist-ps-0.mnist.ml.svc:2222", "mnist-ps-0.mnist-net1.ml.svc:2222"),
        ("mnist-ps-0.other.ml.svc:2222", "mnist-ps-0.mnist-net1.ml.svc:2222"),
        ("mnist-ps-0.mnist.svc:2222", "mnist-ps-0.mnist-net1.mnist.svc:2222"),
        ("mnist-ps-0.ml:2222", "mnist-ps-0.mnist-net1.ml:2222"),
    ],
    ids=["Volcano's", "and namespace", "and svc", "another's", "a namespace of that name", "a namespace"],
)
def test_operators_headless_service_is_replaced(address: str, expected: str):
    pod = a_task(value=json.dumps({"cluster": {"ps": [address]}}), subdomain="mnist")

    assert json.loads(tf_config(applied(pod, patch_of(ask(pod)))))["cluster"]["ps"] == [expected]


@pytest.mark.parametrize("key", ["cluster", "sparseCluster"])
def test_sparse_form_without_parameter_servers_is_rewritten(key: str):
    value = json.dumps({key: {"worker": {"3": "mnist-worker-3.ml.svc:2222"}, "ps": None}, "task": {"index": 3}})

    after = json.loads(rewritten(value, "mnist"))

    assert after[key] == {"worker": {"3": "mnist-worker-3.mnist-net1.ml.svc:2222"}, "ps": None}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("{", "not JSON"),
        ("[" * 90_000, "not JSON"),
        ("[]", "not a mapping"),
        ('{"cluster": []}', "cluster is not a mapping of roles"),
        ('{"cluster": {"worker": "a:1"}}', "not a list of addresses"),
        ('{"cluster": {"worker": [1]}}', "not an address"),
    ],
    ids=["half", "deep", "a list", "no roles", "one address", "a number"],
)
def test_value_of_another_form_is_denied_with_the_fault(value: str, words: str):
    status = ask(a_task(value=value))["status"]

    assert (status["code"], status["reason"]) == (400, "BadRequest")
    assert words in status["message"]


def test_annotation_of_another_value_is_denied():
    assert (
        'railnet.io/rendezvous is \'rdma\'; it should be "eth0" or "net1"' in ask(a_task("rdma"))["status"]["message"]
    )


def test_names_stay_if_the_pod_has_no_address_on_net1():
    networks = Networks(by_name={"default": Network("default", ipam=NoIpam())})
    pod = a_task()

    assert tf_config(applied(pod, patch_of(ask(pod, Policy(networks=networks))))) == TF_CONFIG
    host = a_task(hostNetwork=True)
    assert tf_config(applied(host, patch_of(ask(host)))) == TF_CONFIG


def test_pod_without_tf_config_gets_no_names():
    pod = a_pod(annotations={"railnet.io/rendezvous": "net1"})

    assert [operation["op"] for operation in patch_of(ask(pod))].count("replace") == 0


@pytest.mark.slow
@given(_NAMES)
def test_service_name_is_valid_in_kubernetes(job: str):
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", service(job))
    assert service(job).endswith("-net1")


@pytest.mark.slow
@given(_NAMES, _NAMES)
def test_jobs_with_different_names_have_different_services(one: str, other: str):
    assert (service(one) == service(other)) == (one == other)


def test_job_whose_name_cannot_begin_a_service_name_is_denied():
    with pytest.raises(Misconfigured, match="'1st' cannot be a Service's"):
        service("1st")


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_any_json_is_rewritten_once_or_refused(document: object):
    for value in (
        json.dumps(document),
        json.dumps({"cluster": document}),
        json.dumps({"cluster": {"worker": document}}),
    ):
        try:
            once = rewritten(value, "mnist")
        except Misconfigured:
            continue
        assert rewritten(once, "mnist") == once


def test_value_that_is_too_long_for_a_process_is_denied_without_being_parsed():
    before = json.dumps({"cluster": {"worker": [f"mnist-worker-{number}:2222" for number in range(60_000)]}})

    status = ask(a_task(value=before))["status"]

    assert (
        f"TF_CONFIG cannot get names on net1: it has {len(before)} bytes, and Linux starts no process"
        in status["message"]
    )


def test_value_that_becomes_too_long_by_the_names_is_denied():
    before = json.dumps({"cluster": {"worker": [f"w{number}:2222" for number in range(8000)]}})
    assert len(before) < tf_config_module.MAX_BYTES

    assert "with these names it has" in ask(a_task(value=before))["status"]["message"]


def test_longest_value_is_one_that_linux_starts_a_process_with():
    longest = "x" * tf_config_module.MAX_BYTES
    assert subprocess.run(["/bin/true"], env={"TF_CONFIG": longest}, check=False).returncode == 0
    with pytest.raises(OSError, match="Argument list too long"):
        subprocess.run(["/bin/true"], env={"TF_CONFIG": longest + "x"}, check=False)


TASK = {"type": "worker", "index": 1}
OWN_PORT = {
    "a list": (
        {"worker": ["a:2222", "b.ml.svc:2222"], "ps": ["c:1", "d:2"]},
        {"worker": ["a:2222", "b.ml.svc:20000"], "ps": ["c:1", "d:2"]},
    ),
    "a sparse mapping": ({"worker": {"0": "a:2222", "1": "b:2222"}}, {"worker": {"0": "a:2222", "1": "b:20000"}}),
    "an address without a port": ({"worker": ["a", "b"]}, {"worker": ["a", "b:20000"]}),
    "an IPv6 address": ({"worker": ["a", "[fd00::1]:2222"]}, {"worker": ["a", "[fd00::1]:20000"]}),
    "no entry of its own": ({"worker": ["a:2222"]}, {"worker": ["a:2222"]}),
    "no such role": ({"ps": ["a:2222", "b:2222"]}, {"ps": ["a:2222", "b:2222"]}),
    "a role without tasks": ({"worker": None}, {"worker": None}),
}


@pytest.mark.parametrize("key", ["cluster", "sparseCluster"])
@pytest.mark.parametrize(("before", "after"), OWN_PORT.values(), ids=OWN_PORT.keys())
def test_only_the_tasks_own_address_gets_the_port(key: str, before: object, after: object) -> None:
    changed = with_own_port(json.dumps({key: before, "task": TASK, "environment": "cloud"}), 20000)

    assert json.loads(changed) == {key: after, "task": TASK, "environment": "cloud"}


def test_value_without_an_own_address_stays_as_it_was_written() -> None:
    value = '{ "cluster": {"worker": ["a:1"]},  "task": {"type": "evaluator", "index": 0} }'

    assert with_own_port(value, 20000) == value
