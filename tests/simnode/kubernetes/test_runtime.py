import json
from pathlib import Path

import pytest

from simnode.kubernetes import cni_config
from simnode.kubernetes.runtime import CniFailed, Runtime
from simnode.linux import netns

# Appends its command, environment and stdin to a log, then prints `answer` of its configuration.
STUB = """#!/usr/bin/python3
import json, os, sys
document = json.load(sys.stdin)
with open("{log}", "a") as log:
    log.write(json.dumps([document["type"], dict(os.environ), document]) + "\\n")
if os.environ["CNI_COMMAND"] == "ADD":
    if "fail" in document:
        print(json.dumps(document["fail"])); sys.exit(1)
    sys.stdout.write(document["answer"])
"""
ANSWER = '{ "cniVersion":"1.0.0",  "odd": [1,2 ] }\n'


@pytest.fixture
def stub(tmp_path):
    """A runtime whose plugins `one` and `two` are stubs; `configure` writes its network, `runs` reads what was run."""

    class Stub:
        def __init__(self):
            self.log, self.plugins, self.networks = tmp_path / "log", tmp_path / "bin", tmp_path / "net.d"
            self.plugins.mkdir()
            self.networks.mkdir()
            for name in ("one", "two"):
                (self.plugins / name).write_text(STUB.format(log=self.log))
                (self.plugins / name).chmod(0o755)
            self.runtime = Runtime(self.networks, self.plugins, tmp_path / "results", Path("/run/netns"))

        def configure(self, version="1.0.0", **of_two):
            two = {"type": "two", "answer": ANSWER, "capabilities": {"portMappings": True}, **of_two}
            document = {"cniVersion": version, "name": "net", "plugins": [{"type": "one", "answer": '{"a":1}'}, two]}
            (self.networks / "10-net.conflist").write_text(json.dumps(document))

        def sandbox(self):
            capabilities = {"portMappings": [{"hostPort": 80}], "bandwidth": {"ingressRate": 1}}
            return self.runtime.create_sandbox("team", "worker-0", "uid-1", capabilities)

        def runs(self):
            return [json.loads(line) for line in self.log.read_text().splitlines()]

    return Stub()


def test_add_returns_the_last_plugins_bytes(stub):
    stub.configure()
    sandbox = stub.sandbox()

    assert stub.runtime.set_up(sandbox).result == ANSWER.encode()
    stub.runtime.tear_down(sandbox)


def test_add_passes_results_on_and_only_declared_capabilities(stub):
    stub.configure()
    sandbox = stub.sandbox()
    stub.runtime.set_up(sandbox)
    stub.runtime.tear_down(sandbox)

    (_, _, one), (_, _, two) = stub.runs()[:2]
    assert (one["name"], one["cniVersion"]) == ("net", "1.0.0")
    assert "prevResult" not in one
    assert "runtimeConfig" not in one
    assert two["prevResult"] == {"a": 1}
    assert two["runtimeConfig"] == {"portMappings": [{"hostPort": 80}]}


def test_plugin_gets_the_environment_of_containerd(stub):
    stub.configure()
    sandbox = stub.sandbox()
    stub.runtime.set_up(sandbox)
    stub.runtime.tear_down(sandbox)

    env = stub.runs()[0][1]
    assert env["CNI_ARGS"] == (
        "IgnoreUnknown=1;K8S_POD_NAMESPACE=team;K8S_POD_NAME=worker-0;"
        f"K8S_POD_INFRA_CONTAINER_ID={sandbox.container_id};K8S_POD_UID=uid-1"
    )
    assert (env["CNI_CONTAINERID"], env["CNI_NETNS"]) == (sandbox.container_id, str(sandbox.netns))
    assert (env["CNI_COMMAND"], env["CNI_IFNAME"], env["CNI_PATH"]) == ("ADD", "eth0", str(stub.plugins))


@pytest.mark.parametrize(("version", "cached"), [("0.3.1", None), ("0.4.0", json.loads(ANSWER))])
def test_delete_runs_in_reverse_order_with_the_cached_result_if_the_version_has_it(stub, version, cached):
    stub.configure(version)
    sandbox = stub.sandbox()
    stub.runtime.set_up(sandbox)
    stub.runtime.tear_down(sandbox)

    deletes = stub.runs()[2:]
    assert [kind for kind, _, _ in deletes] == ["two", "one"]
    assert [document.get("prevResult") for _, _, document in deletes] == [cached, cached]
    assert not sandbox.netns.exists()


def test_set_up_runs_delete_after_a_failed_add_and_raises_the_plugins_error(stub):
    stub.configure(fail={"code": 11, "msg": "try again", "details": "later"})
    sandbox = stub.sandbox()

    with pytest.raises(CniFailed) as failure:
        stub.runtime.set_up(sandbox)

    assert (failure.value.code, failure.value.msg, failure.value.details) == (11, "try again", "later")
    assert [env["CNI_COMMAND"] for _, env, _ in stub.runs()] == ["ADD", "ADD", "DEL", "DEL"]
    assert not sandbox.netns.exists()


def test_gc_deletes_a_cached_attachment_without_a_sandbox_with_its_cached_arguments(stub):
    stub.configure()
    sandbox = stub.sandbox()
    stub.runtime.add(sandbox)
    stub.runtime.remove_sandbox(sandbox)

    stub.runtime.collect()

    kind, env, document = stub.runs()[2]
    assert (kind, env["CNI_COMMAND"], env["CNI_CONTAINERID"], env["CNI_NETNS"]) == (
        "two",
        "DEL",
        sandbox.container_id,
        "",
    )
    assert "K8S_POD_NAME=worker-0" in env["CNI_ARGS"]
    assert document["runtimeConfig"] == {"portMappings": [{"hostPort": 80}]}
    assert [env["CNI_COMMAND"] for _, env, _ in stub.runs()[3:]] == ["DEL", "GC", "GC"]


def test_del_and_gc_ignore_a_result_that_add_has_not_yet_written_completely(stub):
    stub.configure()
    sandbox = stub.sandbox()
    stub.runtime.add(sandbox)
    (cached,) = (stub.log.parent / "results").iterdir()
    cached.write_bytes(b"")

    stub.runtime.collect()
    stub.runtime.tear_down(sandbox)

    assert [env["CNI_COMMAND"] for _, env, _ in stub.runs()[2:]] == ["GC", "GC", "DEL", "DEL"]
    assert "prevResult" not in stub.runs()[-1][2]


def test_invoke_passes_any_environment_and_stdin(stub):
    stub.configure()
    done = stub.runtime.invoke("ADD", "one", {"CNI_COMMAND": "ADD"}, b"no JSON")

    assert done.status == 1
    assert b"JSONDecodeError" in done.stderr
    assert done.milliseconds > 0


def test_find_returns_the_first_valid_configuration(tmp_path):
    (tmp_path / "00-broken.conflist").write_text("{")
    (tmp_path / "05-empty.conflist").write_text('{"name":"n","cniVersion":"1.0.0","plugins":[]}')
    (tmp_path / "10-a.conf").write_text('{"name":"a","cniVersion":"1.0.0","type":"bridge"}')
    (tmp_path / "20-b.conflist").write_text('{"name":"b","plugins":[{"type":"bridge"}]}')

    assert cni_config.find(tmp_path).name == "a"


def test_find_fails_in_a_folder_without_configuration(tmp_path):
    with pytest.raises(cni_config.NoNetwork, match="no network config found"):
        cni_config.find(tmp_path)


def test_sandbox_has_a_network_namespace_with_lo_up(stub):
    sandbox = stub.sandbox()
    flags = netns.run_inside(sandbox.netns, lambda: netns_flags("lo"))
    stub.runtime.remove_sandbox(sandbox)

    assert flags & 1


def netns_flags(name):
    from simnode.hardware.infiniband_tun import read_netdev

    return read_netdev(name).flags
