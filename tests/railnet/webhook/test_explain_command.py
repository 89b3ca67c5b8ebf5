"""`railnet admission explain`: it prints what a review would do, without a cluster."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from railnet import configuration
from railnet.cli.output import Form, Output
from railnet.configuration import Admission, Configuration
from railnet.errors import Misconfigured
from railnet.train import dry_run
from railnet.train.job_template import text_of
from railnet.train.up import read
from railnet.webhook.explain_command import explain, policy

POD = """
apiVersion: v1
kind: Pod
metadata:
  name: mnist-worker-1
  namespace: ml
  labels:
    group-name: training.kubedl.io
    job-name: mnist
    replica-type: worker
    replica-index: "1"
spec:
  containers:
  - name: tensorflow
    resources: {limits: {nvidia.com/gpu: 8}}
"""
CPU_POD = POD.replace("nvidia.com/gpu: 8", "cpu: 8")
NAMESPACE = """---
apiVersion: v1
kind: Namespace
metadata:
  name: ml
  labels: {railnet.io/net1: "true"}
"""


def written(folder: Path, text: str) -> str:
    path = folder / "pods.yaml"
    path.write_text(text)
    return str(path)


def test_explain_prints_the_additions_of_a_pod(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert explain(written(tmp_path, POD), Configuration())

    lines = capsys.readouterr().out.splitlines()
    assert lines[:7] == [
        "pod ml/mnist-worker-1",
        "  operator:  KubeDL",
        "  member:    worker 1 of mnist, of unknown size",
        "  container: tensorflow",
        "  because:   container tensorflow asks for 8 GPUs",
        "  done:      added 1 rdma/ib_vf to container tensorflow",
        (
            "  done:      set NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME, TP_SOCKET_IFNAME, HOROVOD_GLOO_IFACE, DMLC_INTERFACE, "
            "OMPI_MCA_btl_tcp_latency_net1, OMPI_MCA_btl_tcp_bandwidth_net1 in container tensorflow"
        ),
    ]
    assert '  add /spec/containers/0/resources/limits/rdma~1ib_vf: "1"' in lines


CLAIM = """---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: two-rails, namespace: ml}
spec: {devices: {requests: [{name: vf, exactly: {deviceClassName: rdma.railnet.io, count: 2}}]}}
"""
TEMPLATE = """---
apiVersion: v1
kind: List
items:
- apiVersion: resource.k8s.io/v1
  kind: ResourceClaimTemplate
  metadata: {name: two-rails, namespace: ml}
  spec: {spec: {devices: {requests: [{name: vf, exactly: {deviceClassName: rdma-ib-vf, count: 2}}]}}}
"""
BY_CLAIM = POD + "  resourceClaims: [{name: rails, resourceClaimName: two-rails}]\n"
BY_TEMPLATE = POD + "  resourceClaims: [{name: rails, resourceClaimTemplateName: two-rails}]\n"


@pytest.mark.parametrize("text", [BY_CLAIM + CLAIM, CLAIM + "---\n" + BY_CLAIM, BY_TEMPLATE + TEMPLATE])
def test_explain_counts_the_vfs_of_claims_in_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert explain(written(tmp_path, text), Configuration())

    printed = capsys.readouterr().out
    assert "2 by ResourceClaims" in printed
    assert "added 1 rdma/ib_vf" not in printed
    assert "not counted" not in printed


def test_explain_says_which_claim_is_not_in_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(written(tmp_path, BY_TEMPLATE + CLAIM), Configuration())

    assert (
        "  claims:    not counted: ResourceClaimTemplate two-rails of namespace ml is not in the file; add it, such as the output of "
        "kubectl get resourceclaimtemplate two-rails -n ml -o yaml"
    ) in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    "claim",
    [
        "---\n{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: two-rails}}\n",
        "---\n{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: two-rails}, spec: [devices]}\n",
        CLAIM.replace("count: 2", "count: two"),
        CLAIM.replace("[{name: vf", "[name, {name: vf"),
    ],
    ids=["no spec", "a list", "no number", "a text in place of a request"],
)
def test_malformed_claim_of_the_file_is_named(tmp_path: Path, claim: str) -> None:
    with pytest.raises(Misconfigured, match="ResourceClaim two-rails is malformed"):
        explain(written(tmp_path, BY_CLAIM + claim), Configuration())


def test_explain_prints_the_priority_class_and_the_values_that_it_replaces(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    pod = POD.replace("spec:\n", "spec:\n  priority: 0\n  preemptionPolicy: PreemptLowerPriority\n")
    assert explain(written(tmp_path, pod), Configuration(admission=Admission("iteration")))

    lines = capsys.readouterr().out.splitlines()
    assert "  done:      set the PriorityClass iteration" in lines
    at = lines.index('  add /spec/priorityClassName: "iteration"')
    assert lines[at + 1 : at + 3] == ["  remove /spec/priority", "  remove /spec/preemptionPolicy"]


def test_explain_prints_why_a_pod_gets_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert explain(written(tmp_path, CPU_POD), Configuration())

    assert capsys.readouterr().out.splitlines()[1:] == [
        (
            "  rails:     nothing is added: worker 1 of mnist (KubeDL): container tensorflow asks for no GPUs; "
            'label it, or its namespace, railnet.io/net1: "true" if it needs a rail'
        )
    ]


@pytest.mark.parametrize("text", [CPU_POD + NAMESPACE, NAMESPACE + "---" + CPU_POD], ids=["after", "before"])
def test_namespace_in_the_file_opts_its_pods_in(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str):
    assert explain(written(tmp_path, text), Configuration())

    assert "  because:   the label railnet.io/net1 of its namespace is true" in capsys.readouterr().out


@pytest.mark.parametrize("namespace", ["kube-system", "railnet"])
@pytest.mark.parametrize("pod", [POD, POD.replace("  labels:", "  annotations: {railnet.io/vf: two}\n  labels:")])
def test_explain_says_that_api_servers_send_no_review_for_pods_of_a_namespace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pod: str, namespace: str
):
    explain(written(tmp_path, pod.replace("namespace: ml", f"namespace: {namespace}")), Configuration())

    note = capsys.readouterr().out.splitlines()[1]
    assert note == (f"  no review: API servers send none for pods of {namespace}; one would have this result:")


def test_explain_says_nothing_of_that_for_other_namespaces(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    explain(written(tmp_path, POD), Configuration())

    assert "no review" not in capsys.readouterr().out


def test_explain_prints_each_pod_of_a_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    entries = "".join(f"- {POD.strip()}\n".replace("\n", "\n  ") + "\n" for _ in range(2))

    assert explain(written(tmp_path, f"kind: List\nitems:\n{entries}"), Configuration())

    assert capsys.readouterr().out.count("pod ml/mnist-worker-1") == 2


def test_explain_fails_if_a_pod_would_be_denied(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pod = POD.replace("  labels:", "  annotations: {railnet.io/network: storage}\n  labels:")

    assert not explain(written(tmp_path, POD + "---" + pod), Configuration())

    *_, name, denied = capsys.readouterr().out.splitlines()
    assert name == "pod ml/mnist-worker-1"
    assert denied.startswith("  denied: pods of namespace 'ml' may not use network 'storage'")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: Pod\nmetadata: [1]", "pod default/without a name\n  denied: metadata is [1]; it should be a mapping\n"),
        ("kind: Pod\nmetadata: {generateName: a-}", "pod default/without a name\n  denied: spec.containers is empty"),
    ],
)
def test_explain_prints_the_denial_of_a_malformed_pod(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
):
    assert not explain(written(tmp_path, text), Configuration())

    assert capsys.readouterr().out.startswith(words)


def test_explain_reads_pods_from_standard_input(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(POD.encode())))

    assert explain("-", Configuration())


REFUSED = {
    "no YAML": "{",
    "a number that is none": '!!int ""',
    "nested too deeply": "[" * 10_000,
    "no pod": NAMESPACE,
    "another kind": POD.replace("kind: Pod", "kind: TFJob"),
    "no object": "- 1",
    "a namespace with another word": NAMESPACE.replace('"true"', '"yes"') + "---" + POD,
    "a namespace with a list in its label": NAMESPACE.replace('"true"', "[yes]") + "---" + POD,
    "a namespace without a mapping of labels": "kind: Namespace\nmetadata: {labels: [a]}\n---" + POD,
    "a namespace without metadata": "kind: Namespace\nmetadata: a\n---" + POD,
    "a list of something else": "kind: List\nitems: 5",
}


@pytest.mark.slow
@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED.keys())
def test_explain_refuses_a_file_without_pods_in_the_expected_form(tmp_path: Path, text: str):
    with pytest.raises(Misconfigured):
        explain(written(tmp_path, text), Configuration())


def test_explain_names_a_missing_file(tmp_path: Path):
    with pytest.raises(
        Misconfigured,
        match=r"pods\.yaml cannot be read: No such file or directory; name a file, or - for standard input$",
    ):
        explain(str(tmp_path / "pods.yaml"), Configuration())


def test_explain_names_standard_input(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(NAMESPACE.encode())))

    with pytest.raises(Misconfigured, match=r"^standard input has no job and no Pod; give a file with one"):
        explain("-", Configuration())


def test_policy_has_the_values_of_the_node_configuration():
    loaded = configuration.parse(
        """
rails: ["0000:03:00.0", "0000:83:00.0"]
pools: [{resource: example.com/hca}, {resource: rdma/ib_vf}]
networks: {storage: {ipam: {type: none}}}
limits: {ml: {networks: [storage]}}
admission: {priorityClass: iteration}
""",
        "node.yaml",
    )

    assert policy(loaded).resources == ("example.com/hca", "rdma/ib_vf")
    assert policy(loaded).rails == 2
    assert policy(loaded).networks is loaded.networks
    assert policy(loaded).priority_class == "iteration"
    assert policy(Configuration()).rails is None


def test_number_of_rails_is_that_of_every_nodes_addresses_where_no_list_is():
    loaded = configuration.parse("networks: {default: {ipam: {type: slice, rails: 8}}}", "node.yaml")

    assert policy(loaded).rails == 8
    assert policy(Configuration()).priority_class is None


@pytest.mark.parametrize(
    ("text", "status"),
    [(POD, 0), (POD.replace("  labels:", "  annotations: {railnet.io/vf: two}\n  labels:"), 1), ("x: [", 3)],
)
def test_exit_status_says_whether_all_pods_are_admitted(tmp_path: Path, text: str, status: int):
    command = [sys.executable, "-m", "railnet", "admission", "explain", "-f", written(tmp_path, text)]

    done = subprocess.run([*command, "--config", os.devnull], capture_output=True, text=True, check=False)

    assert done.returncode == status, done.stderr


IN_MODE = POD.replace("  labels:", "  annotations: {railnet.io/network-mode: host}\n  labels:")


def test_explain_gives_a_pod_in_host_network_mode_the_first_port(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert explain(written(tmp_path, IN_MODE), Configuration(), "20000-29999")

    assert "put on the host's network with port 20000, as tfjob-port of container tensorflow" in capsys.readouterr().out


def test_explain_without_ports_says_that_the_mode_is_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert not explain(written(tmp_path, IN_MODE), Configuration())

    assert "host-network mode is switched off in this cluster" in capsys.readouterr().out


def test_explain_refuses_ports_that_are_no_range(tmp_path: Path):
    with pytest.raises(Misconfigured, match="turn them round"):
        explain(written(tmp_path, IN_MODE), Configuration(), "29999-20000")


IN_GANG = POD.replace(
    "  labels:\n",
    """  annotations:
    alibabacloud.com/topology-aware-constraint: '{"required":{"topologies":[{"key":"kubernetes.io/hostname"}]}}'
  labels:
    pod-group.scheduling.sigs.k8s.io/name: mnist
    pod-group.scheduling.sigs.k8s.io/min-available: "5"
""",
)
OFF = NAMESPACE.replace('railnet.io/net1: "true"', 'railnet.io/gang: "off"')


def explained(folder: Path, capsys: pytest.CaptureFixture[str], text: str, *, gangs: bool = True) -> list[str]:
    assert explain(written(folder, text), Configuration(), gangs=gangs)
    return [
        line for line in capsys.readouterr().out.splitlines() if line.startswith(("  gang:", "  place:", "  waits:"))
    ]


def test_explain_says_which_gang_a_pod_waits_for_and_where_it_may_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explained(tmp_path, capsys, IN_GANG) == [
        "  gang:      mnist, at least 5 pods",
        "  place:     in one kubernetes.io/hostname",
        "  waits:     behind the scheduling gate railnet.io/gang, which the controllers remove when the gang has its place",
    ]


def test_explain_prints_the_additions_of_both_reviews_in_their_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    explain(written(tmp_path, IN_GANG), Configuration(), gangs=True)

    lines = capsys.readouterr().out.splitlines()
    gate = lines.index('  add /spec/schedulingGates: [{"name": "railnet.io/gang"}]')
    assert lines.index('  add /spec/containers/0/resources/limits/rdma~1ib_vf: "1"') < gate
    assert lines[-1].startswith(
        '  add /metadata/annotations/railnet.io~1explain: "worker 1 of mnist (KubeDL), container'
    )
    assert "; then waits with gang mnist, at least 5 pods, in one kubernetes.io/hostname" in lines[-1]


@pytest.mark.parametrize(
    ("text", "gangs", "reason"),
    [
        (IN_GANG, False, "gangs are switched off; `railnet admission --gangs explain` says what they do"),
        (IN_GANG + OFF, True, 'the label railnet.io/gang of its namespace is "off"'),
        (IN_GANG + "  schedulerName: volcano\n", True, "the scheduler volcano places it"),
        (
            IN_GANG + "  schedulingGates: [{name: kueue.x-k8s.io/admission}]\n",
            True,
            "Kueue places it: it has the gate kueue.x-k8s.io/admission",
        ),
    ],
    ids=["off", "namespace", "scheduler", "Kueue"],
)
def test_explain_says_why_a_pod_does_not_wait(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, *, gangs: bool, reason: str
) -> None:
    (line,) = explained(tmp_path, capsys, text, gangs=gangs)

    assert line == f"  gang:      none, so the pod does not wait: {reason}"


def test_explain_says_that_a_constraint_alone_is_no_gang(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "".join(line for line in IN_GANG.splitlines(keepends=True) if "pod-group" not in line)

    (line,) = explained(tmp_path, capsys, text)

    assert "but no label names its gang; add pod-group.scheduling.sigs.k8s.io/name" in line


def test_explain_says_nothing_of_gangs_for_other_pods(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert explained(tmp_path, capsys, POD) == []
    assert explained(tmp_path, capsys, POD, gangs=False) == []


def test_explain_fails_if_a_gang_would_be_denied_and_not_where_gangs_are_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = written(tmp_path, IN_GANG.replace("]}}'", "]}'"))

    assert explain(broken, Configuration())
    assert not explain(broken, Configuration(), gangs=True)
    assert "  denied: alibabacloud.com/topology-aware-constraint is not JSON: Expecting" in capsys.readouterr().out


def test_options_of_the_command_line_reach_the_explanation(tmp_path: Path) -> None:
    options = ["admission", "--gangs", "explain", "-f", written(tmp_path, IN_GANG)]

    done = subprocess.run(
        [sys.executable, "-m", "railnet", *options, "--config", os.devnull],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "  gang:      mnist, at least 5 pods" in done.stdout


JOB = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: llama, namespace: ml}
spec:
  pytorchReplicaSpecs:
    Master: {template: {spec: &pod {containers: [{name: pytorch, resources: {limits: {nvidia.com/gpu: 8}}}]}}}
    Worker: {replicas: 3, template: {spec: *pod}}
"""


def test_explain_renders_the_pods_of_a_whole_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    service = "---\napiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 80}]}\n"
    assert explain(written(tmp_path, JOB + service), Configuration())

    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith(("pod ", "  made by:", "  member:"))] == [
        "pod ml/llama-master-0",
        "  made by:   PyTorchJob llama, 1 pod like this",
        "  member:    master 0 of llama, of 4 pods",
        "pod ml/llama-worker-0",
        "  made by:   PyTorchJob llama, 3 pods like this",
        "  member:    worker 0 of llama, of 4 pods",
    ]


@pytest.mark.parametrize(("rails", "value"), [("[0000:01:00.0, 0000:02:00.0]", "auto"), ("auto", "8")])
def test_explain_says_how_a_pod_of_eight_gpus_gets_more_rails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rails: str, value: str
):
    found = configuration.parse(
        f"rails: {rails.replace('0000', chr(34) + '0000').replace('.0', '.0' + chr(34))}", "node.yaml"
    )
    explain(written(tmp_path, JOB), found)
    hints = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  hint:")]
    explain(
        written(
            tmp_path,
            JOB.replace("template: {spec: &", 'template: {metadata: {annotations: {railnet.io/vf: "2"}}, spec: &'),
        ),
        found,
    )

    assert len(hints) == 2
    assert hints[0].startswith(
        "  hint:      the pod has 8 GPUs and gets 1 of a node's rails; with the annotation railnet.io/vf: "
    )
    assert f'railnet.io/vf: "{value}" in its pod template it gets {2 if value == "auto" else 8}' in hints[0]
    assert capsys.readouterr().out.count("  hint:") == 1  # the worker's template says nothing


@pytest.mark.parametrize("kind", ["pytorch", "tensorflow"])
def test_explain_takes_what_train_would_create(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "job.yaml").write_text(text_of(kind))
    dry_run.client(read(str(tmp_path / "job.yaml")), Output(Form.YAML))

    assert explain(written(tmp_path, capsys.readouterr().out), Configuration())

    said = capsys.readouterr().out
    assert "pod mnist/mnist-worker-0-xxxxx\n  made by:   Job mnist-worker-0, 1 pod like this\n" in said
    assert "  member:    worker 1 of mnist, of " in said


def test_aliases_of_a_job_are_its_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: resnet}
spec:
  pytorchReplicaSpecs:
    Master: &each {replicas: 1, template: {spec: {containers: [{name: pytorch, resources: {limits: {nvidia.com/gpu: 8}}}]}}}
    Worker: {<<: *each, replicas: 3}
"""
    assert explain(written(tmp_path, job), Configuration())

    assert "  made by:   PyTorchJob resnet, 3 pods like this" in capsys.readouterr().out.splitlines()


def test_aliases_that_stand_for_more_values_than_memory_holds_are_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{each}: &a{each} [{', '.join([f'*a{each - 1}'] * 9)}]" for each in range(1, 30)]
    text = "apiVersion: v1\nkind: Job\nspec:\n  " + "\n  ".join(lines)

    with pytest.raises(Misconfigured, match=r"pods.yaml has aliases for \d+ values; write the values"):
        explain(written(tmp_path, text), Configuration())


def test_alias_of_a_value_that_contains_it_is_refused(tmp_path: Path) -> None:
    text = "apiVersion: v1\nkind: Job\nspec: &a {template: *a}\n"

    with pytest.raises(Misconfigured, match=r"pods.yaml has an alias that is a part of its own value"):
        explain(written(tmp_path, text), Configuration())


def test_file_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "pods.yaml").open("wb") as file:
        file.truncate((64 << 20) + 1)

    with pytest.raises(Misconfigured, match=r"pods.yaml has more than 64 MiB"):
        explain(str(tmp_path / "pods.yaml"), Configuration())


def test_what_is_no_yaml_is_one_line_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"pods.yaml is not YAML: line 2, column 1: [^\n]*'\\t'[^\n]*$"):
        explain(written(tmp_path, "kind:\n\tPod\n"), Configuration())


def test_text_of_another_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pods.yaml").write_bytes(POD.encode("utf-16"))

    with pytest.raises(Misconfigured, match=r"pods.yaml is no text in UTF-8"):
        explain(str(tmp_path / "pods.yaml"), Configuration())


@pytest.mark.parametrize("kind", ["pytorch", "tensorflow", "mpi"])
def test_file_of_a_job_of_train_gets_the_command_that_gives_its_objects(kind: str, tmp_path: Path) -> None:
    with pytest.raises(
        Misconfigured, match=r"railnet train up -f \S+ --dry-run=client -o yaml \| railnet admission explain -f -$"
    ):
        explain(written(tmp_path, text_of(kind)), Configuration())
