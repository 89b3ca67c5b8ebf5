"""The job's file is read strictly: what is wrong is named by line and key."""

import io
from pathlib import Path

import pytest

from railnet.errors import Misconfigured
from railnet.jobs.train_job_objects import TrainingJob
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
        (_MINIMAL + "wokers: 2\n", "job.yaml, line 4: wokers is an unknown key; known here: name, image, workers, ps"),
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
        (_MINIMAL + "name: b\n", "job.yaml: the mapping at line 1 has the key 'name' twice; remove one of them"),
        (_MINIMAL + "env: &x {}\nvolumes: *x\n", "line 5 has the alias"),
        ("[1, 2]", "job.yaml: the document is"),
        ("", "job.yaml: name is missing"),
        ("name: [", "job.yaml: it is not YAML"),
        pytest.param("[" * 2_000, "job.yaml is nested too deeply", marks=pytest.mark.slow),
    ],
)
def test_broken_file_is_refused_by_line_and_key(text: str, words: str) -> None:
    with pytest.raises(Misconfigured, match=words):
        job_of(text, "job.yaml")


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"job.yaml cannot be read: .*No such file"):
        text_of(str(tmp_path / "job.yaml"))
    (tmp_path / "job.yaml").write_bytes(b"\xff")
    with pytest.raises(Misconfigured, match=r"job.yaml cannot be read"):
        text_of(str(tmp_path / "job.yaml"))


def test_dash_is_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))

    assert text_of("-") == TEXT
