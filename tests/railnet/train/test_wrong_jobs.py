"""Wrong files and wrong command lines, as people write them: each is said with its line and key, and with what to do, and nothing is created."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from railnet.__main__ import main
from tests.railnet.train.jobs import TEXT

OK, FAILED, USAGE, MISCONFIGURED = 0, 1, 2, 3
Run = Callable[..., tuple[int, str]]
_PYTORCH = "kind: pytorch\nname: resnet\nimage: a\nworkers: 2\ngpus: 8\n"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `railnet train` in a folder with a job's file; return the status and what it said on standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "job.yaml").write_text(TEXT)
    context = {"context": {"cluster": "a", "user": "a"}, "name": "a"}
    unreachable = {
        "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "a", "user": {"token": "x"}}],
        "contexts": [context],
        "current-context": "a",
    }
    (tmp_path / "unreachable").write_text(json.dumps(unreachable))

    def once(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["railnet", "train", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), capsys.readouterr().err

    return once


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TEXT.replace("workers: 3", "workers: three"), "job.yaml, line 5: workers is 'three'; it should be a whole number from 1"),
        (TEXT.replace("gpus:", "gpu:"), "job.yaml, line 6: gpu is an unknown key; did you mean gpus?"),
        (TEXT.replace("memory: 4Gi", "memory: 4GB"), "job.yaml, line 8: memory is '4GB'; it should be a quantity above 0, such as"),
        (TEXT.replace("image: registry.example/train:1\n", ""), "job.yaml: image is missing; it should be a string"),
        (TEXT.replace("[python, /train.py]", "python /train.py"), "job.yaml, line 3: command is 'python /train.py'; it should be a list"),
        (TEXT.replace(" {checkpoints", "\n\tcheckpoints"), "job.yaml, line 11: it is not YAML: a line begins with a tab; indent with spaces"),
        (_PYTORCH + "ps: 2\n", "job.yaml, line 6: ps is for kind: tensorflow, and this job's kind is pytorch; remove ps, or change kind"),
        (_PYTORCH + "command: [python, a.py]\n", "job.yaml, line 6: command starts python once, and a worker has 8 GPUs; begin it with torchrun"),
        (_PYTORCH + "rails: 0\nrendezvous: net1\n", "job.yaml, line 7: rendezvous is net1, and rails is 0: without a rail a task has no net1"),
        (_PYTORCH + "sharedMemory: 64Gi\n", "job.yaml, line 6: sharedMemory is 64Gi, and memory is 4Gi: what is in /dev/shm counts as the"),
        ("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\n", "job.yaml, line 1: apiVersion is a key of Kubernetes' own objects"),
        (f"{_PYTORCH}---\n{_PYTORCH}", "job.yaml, line 6: a second document begins here, and a file has one job; write a file for each job"),
    ],
)  # fmt: skip
def test_wrong_file_is_said_before_a_cluster_is_looked_for(run: Run, text: str, said: str) -> None:
    Path("job.yaml").write_text(text)

    for more in ((), ("--dry-run=client",), ("--dry-run=server",), ("--kubeconfig=missing",)):
        status, words = run("up", "-f", "job.yaml", *more)

        assert status == MISCONFIGURED
        assert words.startswith(f"railnet: {said}")
        assert words.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("up", USAGE, "railnet train up: error: the following arguments are required: -f"),
        ("up job.yaml", USAGE, "error: the following arguments are required: -f"),
        ("up -f missing.yaml", MISCONFIGURED, "missing.yaml cannot be read: No such file; `railnet train init pytorch missing.yaml` writes"),
        ("up -f .", MISCONFIGURED, ". cannot be read: Is a directory; name a file that you may read, or - for stdin"),
        ("up -f job.yaml -o yaml", USAGE, "-o prints objects that are not created: add --dry-run=client, or --dry-run=server"),
        ("up -f job.yaml --dry-run=yes", USAGE, "argument --dry-run: invalid choice: 'yes' (choose from "),
        ("up -f job.yaml", MISCONFIGURED, "there is no kubeconfig"),
        ("up -f job.yaml --kubeconfig missing", MISCONFIGURED, "there is no kubeconfig missing; name one with --kubeconfig, or in"),
        ("up -f job.yaml --kubeconfig unreachable --context b", MISCONFIGURED, "kubeconfig unreachable"),
        ("init", USAGE, "railnet train init: error: the following arguments are required: kind"),
        ("init torch", USAGE, "argument kind: invalid choice: 'torch' (choose from "),
        ("init pytorch job.yaml", FAILED, "job.yaml exists and stays as it is; name another file, or replace it with --force"),
        ("init pytorch --name Mnist", FAILED, "--name is 'Mnist'; it should have lower-case letters, digits and hyphens"),
        ("logs mnist -f --pack a.tar.gz", USAGE, "argument --pack: not allowed with argument -f"),
        ("start", USAGE, "argument VERB: invalid choice: 'start' (choose from "),
    ],
)  # fmt: skip
def test_wrong_command_line_is_said_with_what_to_do(run: Run, line: str, status: int, said: str) -> None:
    found, words = run(*line.split())

    assert found == status
    assert said in words
    assert Path("job.yaml").read_text() == TEXT


@pytest.mark.parametrize("line", ["up -f job.yaml", "up -f job.yaml --dry-run=server", "ls", "down mnist", "top"])
def test_api_server_that_does_not_answer_is_one_line_with_what_to_do(run: Run, line: str) -> None:
    status, words = run(*line.split(), "--kubeconfig=unreachable")

    assert (status, words.count("\n")) == (FAILED, 1)
    assert words.startswith("railnet: the API server does not answer: cannot ")
    assert "Connection refused; start the cluster, or choose another one with --kubeconfig or --context" in words


def test_dry_run_by_the_client_needs_no_cluster(run: Run) -> None:
    assert run("up", "-f", "job.yaml", "--dry-run=client", "-o", "json") == (OK, "")
