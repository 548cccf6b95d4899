"""Scripts that were written for Horovod before there was this one: the code blocks of its documentation and of two
pages about it run as they stand, started by the commands that were published with them. The table: docs/scripts.md.

The scripts are `document_*.py`. Marks say what is not the document's: `# filled in` ends a line that was left to the
reader, `# was: ` precedes a line of the document in place of which the next ones run, `# changed: why` ends one that
today's TensorFlow or Keras asks for.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jobs
import pytest
from jobs import Ended, warm
from jobs.needs import needs

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples" / "tensorflow2"
WARM = "warm"  # the folder of the program that `warm_python` writes
SHUFFLED, BATCH = 10000, 128  # by each worker of a data service, in the scripts

slow = pytest.mark.slow
warm_ranks = pytest.mark.usefixtures("warm_python")

# The number of lines that are the document's, and their hash: taken from the documents. A change means that somebody
# has edited a document's line without a mark.
LITERAL = {
    "tensorflow1_monitored": (28, "b7dfef73c0978697"),
    "tensorflow1_broadcast_op": (14, "7246166f1b45941c"),
    "tensorflow2_tape": (45, "e4299cada8df1664"),
    "data_service": (10, "7aaaf8b657e90683"),
    "data_service_training_side": (15, "a2d7db340186d67b"),
    "sagemaker": (8, "25e9796b3227a017"),
}


def literal_lines(text: str) -> list[str]:
    """The lines that are the document's, without empty ones; not the script's docstring either."""
    lines = text.splitlines()[ast.parse(text).body[0].end_lineno :]
    kept = [line for line in lines if line.strip() and not re.search(r"# (filled in|changed: )", line)]
    return [re.sub(r"^( *)# was: ", r"\1", line).rstrip() for line in kept]


def test_every_script_is_tested_and_in_the_table() -> None:
    scripts = {path.name for path in HERE.glob("document_*.py")}
    assert scripts == {f"document_{name}.py" for name in LITERAL}
    table = (HERE.parents[1] / "docs" / "scripts.md").read_text()
    assert scripts == set(re.findall(r"\(\.\./tests/scripts/(document_\w+\.py)\)", table))


@pytest.mark.parametrize("name", LITERAL)
def test_a_script_holds_the_lines_of_its_document(name: str) -> None:
    lines = literal_lines((HERE / f"document_{name}.py").read_text())
    assert (len(lines), hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]) == LITERAL[name]


# ---- running


@pytest.fixture
def warm_python(tmp_path: Path) -> None:
    """The `python` of the commands starts warm: for scripts of which one like them starts as a user's."""
    (tmp_path / WARM).mkdir()
    warm.program(tmp_path / WARM, "tensorflow")


def variables(folder: Path) -> dict[str, str]:
    """Where `horovodrun` and `python` are those of this environment; each rank works in folder/rankN."""
    programs = str(Path(sys.executable).parent)
    assert shutil.which("horovodrun", path=programs), "make dev installs horovodrun"
    path = os.pathsep.join([str(folder / WARM), programs, os.environ["PATH"]])
    return {"PATH": path, "SCRIPT_RESULTS": str(folder), "TF_CPP_MIN_LOG_LEVEL": "3"}


def published(command: str, folder: Path, cwd: Path) -> Ended:
    """Runs a document's command."""
    return jobs.run(shlex.split(placed(command, folder)), variables(folder), cwd, patience_s=115)


def placed(text: str, folder: Path) -> str:
    """A document's text with the test's folders in place of /tmp."""
    return text.replace("/tmp/train_logs", "train_logs").replace("/tmp/compute.json", str(folder / "compute.json"))


def run(name: str, command: str, folder: Path, *changes: tuple[str, str]) -> list[dict[str, Any]]:
    """Runs a document's command, its script being the one of this name with these changes; what the ranks reported."""
    script = re.findall(r"\S+\.py", command)[0]
    text = (HERE / f"document_{name}.py").read_text()
    for was, now in changes:
        assert was in text
        text = text.replace(was, now)
    (folder / script).write_text(placed(text, folder))
    shutil.copy(HERE / "filled_in.py", folder)
    ended = published(command, folder, folder)
    assert ended.code == 0, str(ended)
    return [json.loads((path / "result.json").read_text()) for path in sorted(folder.glob("rank*"))]


def saved(folder: Path, pattern: str) -> list[str]:
    """The files of this kind, as "rankN/..."."""
    return sorted(str(path.relative_to(folder)) for path in folder.glob(f"rank*/{pattern}"))


def assert_trained(results: list[dict[str, Any]], ranks: int) -> None:
    """All ranks have learned something, and the same."""
    assert len(results) == ranks
    assert len({result["weights"] for result in results}) == len({result["steps"] for result in results}) == 1
    assert all(result["last"] < 0.7 * result["first"] for result in results), results


# ---- TensorFlow 1


@slow
@needs("tensorflow")
def test_tensorflow_1_script(tmp_path: Path) -> None:
    assert_trained(run("tensorflow1_monitored", "horovodrun -np 2 python script.py", tmp_path), 2)
    assert saved(tmp_path, "train_logs/*.index") == [f"rank0/train_logs/model.ckpt-{step}.index" for step in (0, 120)]


@slow
@warm_ranks
@needs("tensorflow")
def test_tensorflow_1_script_of_a_tutorial(tmp_path: Path) -> None:
    """The older form of the same example: without the configuration of the session."""
    command = "horovodrun -np 4 -H localhost:4 python train.py"
    older = (" " * 39 + "config=config,\n", "")
    assert_trained(run("tensorflow1_monitored", command, tmp_path, older), 4)
    assert saved(tmp_path, "train_logs/*.index") == [f"rank0/train_logs/model.ckpt-{step}.index" for step in (0, 60)]


@slow
@warm_ranks
@needs("tensorflow")
def test_tensorflow_1_without_monitored_session(tmp_path: Path) -> None:
    assert_trained(run("tensorflow1_broadcast_op", "horovodrun -np 2 python script.py", tmp_path), 2)
    assert saved(tmp_path, "train_logs/*.index") == ["rank0/train_logs/model.ckpt.index"]


# ---- TensorFlow 2 and Keras

# What the text beside the example says of layers that every rank has of its own: here the last one.
TAPE, BUILT = "    tape = hvd.DistributedGradientTape(tape)\n", "opt = tf.optimizers.Adam(0.001 * hvd.size())\n"
LOCAL_LAYERS = {
    "PartialDistributedGradientTape": [
        (TAPE, "    tape = hvd.PartialDistributedGradientTape(tape, local_layers=[model.layers[-1]])\n"),
    ],
    "register_local_var": [
        (TAPE, ""),
        (
            BUILT,
            f"{BUILT}opt = hvd.DistributedOptimizer(opt)\n"
            "for variable in model.layers[-1].trainable_variables:\n"
            "    opt.register_local_var(variable)\n",
        ),
    ],
}
REPORTED = (
    "report(losses, model.variables)",
    "report(losses, [v for layer in model.layers[:-1] for v in layer.variables], "
    "local=model.layers[-1].bias.numpy().tolist())",
)


@slow
@needs("tensorflow")
def test_tensorflow_2_script(tmp_path: Path) -> None:
    assert_trained(run("tensorflow2_tape", "horovodrun -np 2 python script.py", tmp_path), 2)
    assert saved(tmp_path, "*.index") == ["rank0/checkpoints-1.index"]


@slow
@warm_ranks
@needs("tensorflow")
@pytest.mark.parametrize("way", LOCAL_LAYERS)
def test_tensorflow_2_with_local_layers(way: str, tmp_path: Path) -> None:
    results = run("tensorflow2_tape", "horovodrun -np 2 python script.py", tmp_path, *LOCAL_LAYERS[way], REPORTED)
    assert_trained(results, 2)
    assert results[0]["local"] != results[1]["local"]


@slow
@needs("tensorflow")
def test_sagemaker_script(tmp_path: Path) -> None:
    command = "horovodrun -np 2 python train.py --epochs 3 --learning-rate 0.02 --batch-size 32"
    assert_trained(run("sagemaker", command, tmp_path), 2)
    assert saved(tmp_path, "*.keras") == [f"rank0/checkpoint-{epoch}.keras" for epoch in (1, 2, 3)]


@slow
@needs("tensorflow", "tf_keras")
@pytest.mark.parametrize(
    ("name", "was", "now"),
    [
        ("tensorflow2_tape", "(opt.variables,", "(opt.variables(),"),
        (
            "sagemaker",
            "SGD(learning_rate=rate, momentum=momentum)",
            "tf.keras.optimizers.legacy.SGD(lr=lr * size, decay=weight_decay, momentum=momentum)",
        ),
    ],
)
def test_lines_that_only_keras_3_changes(
    name: str, was: str, now: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    assert_trained(run(name, "horovodrun -np 2 python script.py", tmp_path, (was, now)), 2)


KERAS_2 = """
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
import horovod.tensorflow as hvd
hvd.init()
config = tf.ConfigProto()
config.gpu_options.visible_device_list = str(hvd.local_rank())
tf.keras.backend.set_session(tf.Session(config=config))
outputs = tf.layers.dense(tf.ones((2, 3)), 4)
step = hvd.DistributedOptimizer(tf.train.GradientDescentOptimizer(0.1)).minimize(tf.reduce_mean(outputs))
with tf.Session(config=config) as session:
    session.run(tf.global_variables_initializer())
    session.run(hvd.broadcast_global_variables(0))
    session.run(step)
print("trained; estimators:", hasattr(tf, "estimator"))
"""


@slow
@needs("tensorflow", "tf_keras")
def test_layers_and_sessions_of_keras_need_keras_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(KERAS_2)
    refused = published("horovodrun -np 1 python train.py", tmp_path, tmp_path)
    assert refused.code and "AttributeError" in refused.stderr, str(refused)
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    ended = published("horovodrun -np 2 python train.py", tmp_path, tmp_path)
    assert ended.code == 0 and ended.stdout.count("trained; estimators: False") == 2, str(ended)


# ---- data service

COMPUTE = "horovodrun -np 4 python -m horovod.tensorflow.data.compute_worker /tmp/compute.json"
TWO = "horovodrun -np 4 python -m horovod.tensorflow.data.compute_worker --dispatchers 2 /tmp/compute.json"
TRAINING = (
    "horovodrun -np 4 python -m horovod.tensorflow.data.compute_worker --dispatcher-side training /tmp/compute.json"
)
TRAIN = "horovodrun -np 2 python tensorflow2_mnist_data_service.py /tmp/compute.json"


@contextlib.contextmanager
def compute_job(command: str, folder: Path, told: bool = False) -> Iterator[None]:
    """Runs the compute job; at the end stops it as its user does, with Ctrl-C, unless the training job has told it to
    end."""
    with jobs.Place() as place:
        job = jobs.Job(place, variables(folder))
        job.start(shlex.split(placed(command, folder)))
        yield
        if told:
            assert job.wait(60) == 0, str(job)
        else:
            assert job.process.poll() is None, str(job)
            job.process.send_signal(signal.SIGINT)
            assert job.wait(30) == 128 + signal.SIGINT, str(job)
    assert not (folder / "compute.json").exists()


def assert_delivered(results: list[dict[str, Any]], shared: bool, workers: int) -> None:
    """No element came twice; all that did not come is still on its way; ranks that share have nothing in common."""
    numbers = [set(result["numbers"]) for result in results]
    assert [len(each) for each in numbers] == [len(result["numbers"]) for result in results] == [50 * BATCH] * 2
    streams = [numbers[0] | numbers[1]] if shared else numbers
    for stream in streams:
        assert max(stream) - len(stream) < workers * (SHUFFLED + 20 * BATCH)
    # Without sharing both have read a tenth or more of one stream's beginning.
    assert not numbers[0] & numbers[1] if shared else len(numbers[0] & numbers[1]) > 200


@slow
@needs("tensorflow")
@pytest.mark.parametrize("command", [COMPUTE, TWO], ids=["one dispatcher", "dispatchers 2"])
def test_data_service(command: str, tmp_path: Path) -> None:
    with compute_job(command, tmp_path):
        results = run("data_service", TRAIN, tmp_path)
    assert_trained(results, 2)
    assert_delivered(results, False, workers=4 if command == COMPUTE else 2)


@slow
@warm_ranks
@needs("tensorflow")
@pytest.mark.parametrize("options", ["reuse_dataset=True", "reuse_dataset=True, round_robin=True"])
def test_data_service_with_one_dataset_for_all(options: str, tmp_path: Path) -> None:
    with compute_job(COMPUTE, tmp_path):
        results = run("data_service", TRAIN, tmp_path, ("rank, size)", f"rank, size, {options})"))
    assert_trained(results, 2)
    assert_delivered(results, True, workers=4)


@slow
@warm_ranks
@needs("tensorflow")
@pytest.mark.parametrize("options", ["", "--reuse-dataset", "--reuse-dataset --round-robin"])
def test_data_service_with_training_side_dispatchers(options: str, tmp_path: Path) -> None:
    with compute_job(TRAINING, tmp_path):
        results = run("data_service_training_side", f"{TRAIN} {options}", tmp_path)
    assert_trained(results, 2)
    assert_delivered(results, bool(options), workers=4)


@slow
@warm_ranks
@needs("tensorflow")
@pytest.mark.parametrize("command", [COMPUTE, TWO, TRAINING], ids=["one dispatcher", "dispatchers 2", "training side"])
def test_the_example_that_the_document_names(command: str, tmp_path: Path) -> None:
    with compute_job(command, tmp_path, told=True):
        ended = published(TRAIN, tmp_path, EXAMPLES)
        assert ended.code == 0, str(ended)
    assert "equal on all ranks: True" in ended.stdout
    assert float(ended.stdout.partition("test accuracy ")[2][:4]) > 0.5


def test_the_sides_differ_as_the_document_says() -> None:
    command = "diff -w examples/tensorflow2/tensorflow2_mnist_data_service_train_fn_*"
    done = subprocess.run(command, shell=True, cwd=EXAMPLES.parents[1], capture_output=True, text=True)
    compute = [line[2:].strip() for line in done.stdout.splitlines() if line.startswith("<")]
    training = [line[2:].strip() for line in done.stdout.splitlines() if line.startswith(">")]
    assert done.returncode == 1 and len(compute) < 5 and len(training) < 15, done.stdout
    assert any(line.startswith(".send_to_data_service(") for line in compute)
    assert "with tf_data_service(compute_config, rank) as dispatcher_address:" in training


# ---- other hosts, and what is not yet

SEVERAL_HOSTS = [
    "horovodrun -np 16 -H server1:4,server2:4,server3:4,server4:4 python train.py",
    "horovodrun -np 4 --hosts cpu-node-1:2,cpu-node-2:2 python -m horovod.tensorflow.data.compute_worker /tmp/c.json",
    "horovodrun -np 2 --hosts gpu-node-1:1,gpu-node-2:1 python tensorflow2_mnist_data_service.py /tmp/compute.json",
]


def refused(command: str, folder: Path, **environ: str) -> tuple[int, str]:
    ended = jobs.run(shlex.split(command), {**variables(folder), **environ}, folder)
    assert not ended.stdout
    return ended.code, ended.stderr


@pytest.mark.parametrize("command", SEVERAL_HOSTS)
def test_hosts_that_do_not_exist_are_named_one_by_one(command: str, tmp_path: Path) -> None:
    if shutil.which("ssh") is None:
        pytest.skip("ssh is not installed.")
    code, said = refused(command, tmp_path)
    hosts = re.findall(r"([\w-]+):\d", command)
    assert code == 1 and said.startswith(f"horovodrun: {len(hosts)} of {len(hosts)} hosts cannot be used:\n")
    assert [line.split(":")[0].strip() for line in said.splitlines()[1:]] == hosts


def test_ranks_of_an_mpirun_without_its_library_are_refused_with_a_remedy(tmp_path: Path) -> None:
    variables = {"RANK": "0", "SIZE": "4", "LOCAL_RANK": "0", "LOCAL_SIZE": "2"}
    command = "python -c 'import horovod.numpy as hvd; hvd.init()'"
    environ = {f"OMPI_COMM_WORLD_{name}": each for name, each in variables.items()}
    code, said = refused(command, tmp_path, HOROVOD_MPI_LIBRARY=str(tmp_path / "libmpi.so"), **environ)
    assert code == 1 and f"{tmp_path}/libmpi.so cannot be opened: " in said


def test_the_file_for_spark_submit_is_named_without_spark(tmp_path: Path) -> None:
    """What is submitted runs in tests/spark/compute_job.py."""
    command = 'python -c "import horovod.spark.tensorflow.compute_worker as worker; print(worker.__file__)"'
    ended = jobs.run(shlex.split(command), variables(tmp_path), tmp_path)
    file = Path(ended.stdout.strip())
    assert ended.code == 0 and file.name == "compute_worker.py" and file.is_file()
