"""The job's file is read strictly: what is wrong is named by line and key."""

import io
from pathlib import Path

import pytest

from railnet.errors import Misconfigured
from railnet.jobs.train_job.train_job import TrainingJob
from railnet.train.job_file import job_of, text_of
from tests.railnet.train.jobs import TEXT, job


def test_ten_lines_are_a_job() -> None:
    assert len(TEXT.splitlines()) == 10
    assert job() == TrainingJob(
        name="mnist",
        image="registry.example/train:1",
        command=("python", "/train.py"),
        ps=2,
        workers=3,
        gpus=1,
        cpu="500m",
        memory="4Gi",
        priority="iteration",
        volumes={"checkpoints": "/checkpoints"},
    )


def test_name_image_and_workers_suffice() -> None:
    found = job_of("name: a\nimage: b\nworkers: 1\n", "job.yaml")

    assert (found.cpu, found.memory, found.ps, found.rails, found.in_namespace) == ("500m", "4Gi", 0, 1, "a")


_MINIMAL = "name: a\nimage: b\nworkers: 1\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("image: b\nworkers: 1\n", "job.yaml: name is missing; it should be the job's name"),
        (_MINIMAL + "wokers: 2\n", r"job.yaml, line 4: wokers is an unknown key; did you mean workers\?"),
        (_MINIMAL.replace("1", "0"), "job.yaml, line 3: workers is 0; it should be a whole number from 1 to 10000"),
        (_MINIMAL.replace("1", "'1'"), "line 3: workers is '1'"),
        (_MINIMAL.replace("1", "true"), "line 3: workers is true"),
        (_MINIMAL.replace(" a", " A"), "line 1: name is 'A'; it should be the job's name"),
        (_MINIMAL.replace(" a", " 1a"), "line 1: name is '1a'"),
        (_MINIMAL + "ps: -1\n", "line 4: ps is -1"),
        (_MINIMAL + "memory: 4 Gi\n", "line 4: memory is '4 Gi'; it should be a quantity above 0, such as 500m or 4Gi"),
        (_MINIMAL + "cpu: 0\n", "line 4: cpu is 0"),
        (_MINIMAL + "cpu: [1]\n", "line 4: cpu is"),
        (
            _MINIMAL + "command: python /train.py\n",
            "line 4: command is 'python /train.py'; it should be a list of strings",
        ),
        (_MINIMAL + "command:\n- python\n- 5\n", r"line 6: command\[1\] is 5; it should be a string"),
        (_MINIMAL + "volumes:\n  data: /data\n  more.data: data\n", "line 6: volumes.more.data is 'data'"),
        (_MINIMAL + "volumes:\n  Data: /data\n", "line 4: a key of volumes is 'Data'"),
        (_MINIMAL + "gang: yes please\n", "line 4: gang is 'yes please'; it should be true or false"),
        (_MINIMAL + "topology: a leaf\n", "line 4: topology is 'a leaf'; it should be the key of a node's label"),
        (
            _MINIMAL + f"topology: {'a' * 64}\n",
            "it should be the key of a node's label, such as kubernetes.io/hostname",
        ),
        (
            _MINIMAL + "topology: a\nannotations: {alibabacloud.com/topology-aware-constraint: '{}'}\n",
            "topology and the annotation alibabacloud.com/topology-aware-constraint exclude each other",
        ),
        (_MINIMAL + "gang: false\ntopology: a\n", "line 4: gang is false, and the tasks of a topology are a gang"),
        (_MINIMAL + "env:\n  A: 1\n", r"line 5: env.A is 1; it should be a string \(quote a number\)"),
        (_MINIMAL + "env:\n  1A: x\n", "line 4: a key of env is '1A'"),
        (
            _MINIMAL + "annotations:\n  railnet.io/sticky: true\n",
            "line 5: annotations.railnet.io/sticky is true; it should be",
        ),
        (_MINIMAL + "annotations:\n  a b: x\n", "line 4: a key of annotations is 'a b'"),
        (_MINIMAL + "rendezvous: eth1\n", "line 4: rendezvous is 'eth1'; it should be one of net1, eth0"),
        (_MINIMAL + "priority: High\n", "line 4: priority is 'High'"),
        (_MINIMAL + "imagePullSecrets: harbor\n", "line 4: imagePullSecrets is 'harbor'; it should be a list of names"),
        (_MINIMAL + "port: 70000\n", "line 4: port is 70000"),
        (_MINIMAL + "rails: 0\nrendezvous: net1\n", "line 5: rendezvous is net1, and rails is 0"),
        (_MINIMAL + "name: b\n", "job.yaml: the key 'name' is at line 1 and again at line 4; remove one of them"),
        (_MINIMAL + "env: &x {}\nvolumes: *x\n", "line 5 has an alias"),
        ("[1, 2]", "job.yaml: the document is"),
        (
            "",
            r"job.yaml has 3 mistakes\n  name is missing; it should be .*\n  image is missing; .*\n  workers is missing; ",
        ),
        ("name: [", "job.yaml, line 1: it is not YAML: while parsing a flow node"),
        (_MINIMAL + "env:\n\tA: b\n", "job.yaml, line 5: it is not YAML: a line begins with a tab; indent with spaces"),
        (_MINIMAL + "---\n" + _MINIMAL, "job.yaml, line 4: a second document begins here"),
        (_MINIMAL + "zzz: 1\n", "job.yaml, line 4: zzz is an unknown key; known here: name, image, workers, kind"),
        (_MINIMAL + "kind: torch\n", "line 4: kind is 'torch'; it should be one of tensorflow, pytorch, mpi"),
        (
            _MINIMAL + "kind: pytorch\nps: 1\n",
            "line 5: ps is for kind: tensorflow, and this job's kind is pytorch; remove ps",
        ),
        (
            _MINIMAL + "processes: 8\n",
            "line 4: processes is for kind: pytorch or mpi, and this job's kind is tensorflow",
        ),
        (
            _MINIMAL + "sharedMemory: lots\n",
            "line 4: sharedMemory is 'lots'; it should be a quantity above 0, such as 16Gi, or none",
        ),
        (
            _MINIMAL + "sharedMemory: 8Gi\n",
            "line 4: sharedMemory is 8Gi, and memory is 4Gi: what is in /dev/shm counts",
        ),
        (_MINIMAL + "rails: all\n", "line 4: rails is 'all'; it should be auto, or a whole number from 0 to 1024"),
        (
            _MINIMAL + "tolerations: [{key: a, operator: Is}]\n",
            r"line 4: tolerations\[0\].operator is 'Is'; it should be one of Exists",
        ),
        (
            _MINIMAL + "tolerations:\n- {key: a}\n- {ky: b}\n",
            r"line 6: tolerations\[1\].ky is an unknown key; known here: key",
        ),
        (_MINIMAL + "tolerations: a\n", "line 4: tolerations is 'a'; it should be a list of tolerations"),
        (
            _MINIMAL + "nodeSelector: {gpu: true}\n",
            "line 4: nodeSelector.gpu is true; it should be the value of a label",
        ),
        (
            _MINIMAL + "affinity: {node: {}}\n",
            "line 4: affinity.node is an unknown key; known here: nodeAffinity, podAffinity",
        ),
        (_MINIMAL + "affinity: {nodeAffinity: x}\n", "line 4: affinity.nodeAffinity is 'x'; it should be a mapping"),
        (_MINIMAL + "restart: Always\n", "line 4: restart is 'Always'; it should be one of OnFailure, Never"),
        (_MINIMAL + "volumes:\n  a: {hostPath: {path: /a}}\n", "line 5: volumes.a.mountPath is missing"),
        (
            _MINIMAL + "volumes:\n  a: {mountPath: /a}\n",
            "line 5: volumes.a has 0 sources; it should have one, such as hostPath",
        ),
        (_MINIMAL + "volumes:\n  a.b: {mountPath: /a, emptyDir: {}}\n", "line 5: volumes.a.b cannot have this name"),
        (_MINIMAL + "volumes:\n  a: {mountPath: /a, emptydir: {}}\n", "line 5: volumes.a.emptydir is an unknown key"),
        (
            "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\n",
            "line 1: apiVersion is a key of Kubernetes' own objects, and this is the file of a job of railnet train",
        ),
        pytest.param("[" * 2_000, "job.yaml is nested too deeply", marks=pytest.mark.slow),
    ],
)
def test_broken_file_is_refused_by_line_and_key(text: str, words: str) -> None:
    with pytest.raises(Misconfigured, match=words):
        job_of(text, "job.yaml")


def test_all_mistakes_are_said_at_once_in_the_order_of_their_lines() -> None:
    text = "name: A\nworkers: '2'\ngpus: -1\nenv:\n  ONE: 1\n  TWO: 2\nmemmory: 4Gi\ncommand: [a, 1, 2]\n"

    with pytest.raises(Misconfigured) as caught:
        job_of(text, "job.yaml")

    head, *lines = str(caught.value).splitlines()
    assert head == "job.yaml has 9 mistakes"
    assert [line.strip().partition(";")[0] for line in lines] == [
        "image is missing",
        "line 1: name is 'A'",
        "line 2: workers is '2'",
        "line 3: gpus is -1",
        "line 5: env.ONE is 1",
        "line 6: env.TWO is 2",
        "line 7: memmory is an unknown key",
        "line 8: command[1] is 1",
        "line 8: command[2] is 2",
    ]


def test_values_that_contradict_each_other_are_said_at_once() -> None:
    text = _MINIMAL + "rails: 0\nrendezvous: net1\nscript: a\ncommand: [b]\ngang: false\ntopology: a\n"

    with pytest.raises(Misconfigured) as caught:
        job_of(text, "job.yaml")

    assert [line.partition(" is ")[0].partition(" and ")[0] for line in str(caught.value).splitlines()] == [
        "job.yaml has 3 mistakes",
        "  line 5: rendezvous",
        "  line 7: command",
        "  line 8: gang",
    ]


def test_file_of_very_many_mistakes_is_cut() -> None:
    text = _MINIMAL + "env:\n" + "".join(f"  A{number}: 1\n" for number in range(50))

    with pytest.raises(Misconfigured) as caught:
        job_of(text, "job.yaml")

    lines = str(caught.value).splitlines()
    assert (len(lines), lines[0], lines[-1]) == (12, "job.yaml has 50 mistakes", "  and 40 more")


@pytest.mark.parametrize(
    ("command", "gpus", "more", "words"),
    [
        (
            "[python, /train.py]",
            8,
            "",
            "line 6: command starts python once, and a worker has 8 GPUs; begin it with torchrun",
        ),
        ("[/usr/bin/python3, /train.py]", 2, "", "line 6: command starts python3 once, and a worker has 2 GPUs"),
        ("[python, /train.py]", 8, "processes: 1\n", ""),
        ("[python, /train.py]", 1, "", ""),
        ("[torchrun, /train.py]", 8, "", ""),
        ("[python, -m, torch.distributed.run, /train.py]", 8, "", ""),
        ("[python, -m, accelerate.commands.launch, /train.py]", 8, "", ""),
    ],
)
def test_command_that_would_leave_gpus_idle_is_refused(command: str, gpus: int, more: str, words: str) -> None:
    text = f"kind: pytorch\n{_MINIMAL}gpus: {gpus}\ncommand: {command}\n{more}"

    if not words:
        assert job_of(text, "job.yaml").processes_each == (1 if more else gpus)
        return
    with pytest.raises(Misconfigured, match=words):
        job_of(text, "job.yaml")


def test_pytorch_has_defaults_of_its_own() -> None:
    one, many = (job_of(f"kind: pytorch\n{_MINIMAL}gpus: {gpus}\n", "job.yaml") for gpus in (1, 8))

    assert (one.port, one.shared_memory, one.rails, one.processes_each) == (29500, "4Gi", 1, 1)
    assert (many.rails, many.processes_each) == ("auto", 8)
    assert job_of(f"kind: pytorch\n{_MINIMAL}sharedMemory: none\nmemory: 1Gi\n", "job.yaml").shared_memory is None
    assert job_of(f"kind: pytorch\n{_MINIMAL}memory: 1Gi\n", "job.yaml").shared_memory == "1Gi"
    assert job_of(f"kind: pytorch\n{_MINIMAL}gpus: 8\nrails: 2\n", "job.yaml").rails == 2


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"job.yaml cannot be read: .*No such file"):
        text_of(str(tmp_path / "job.yaml"))
    (tmp_path / "job.yaml").write_bytes(b"\xff")
    with pytest.raises(Misconfigured, match=r"job.yaml cannot be read"):
        text_of(str(tmp_path / "job.yaml"))


def test_file_that_is_longer_than_a_config_map_is_no_job(tmp_path: Path) -> None:
    with (tmp_path / "job.yaml").open("wb") as file:
        file.truncate((1 << 20) + 1)
    with pytest.raises(Misconfigured, match=r"job.yaml has more than 1 MiB, so it is no file of a job$"):
        text_of(str(tmp_path / "job.yaml"))


def test_stdin_that_is_too_long_is_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"#" * ((1 << 20) + 1))))

    with pytest.raises(Misconfigured, match=r"^stdin has more than 1 MiB"):
        text_of("-")


def test_dash_is_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))

    assert text_of("-") == TEXT
