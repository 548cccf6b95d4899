"""Whole trainings over hosts: PyTorch, TensorFlow, Keras, and the data service on hosts of its own."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import Hosts
from .network import Network, why_absent
from .trainings import (
    COMPUTE,
    DISPATCHERS,
    KERAS,
    NODES,
    PYTORCH,
    TENSORFLOW,
    TRAINING_SIDE,
    Training,
    serve_and_train,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def shown(hosts: Hosts, training: Training) -> list[str]:
    """What a training shows in the end."""
    if not importlib.util.find_spec(training.module):
        pytest.skip(f"{training.module} is not installed.")
    ended = training.run(hosts)
    assert ended.code == 0, ended
    return [line for line in ended.out if training.shows in line]


def test_pytorch(hosts: Hosts) -> None:
    results = [json.loads(line.partition("RESULT ")[2]) for line in shown(hosts, PYTORCH)]
    assert len(results) == 2 and results[1]["loss"] < results[0]["loss"]
    assert all(len(result["hashes"]) == 2 and len(set(result["hashes"])) == 1 for result in results)


def test_tensorflow(hosts: Hosts) -> None:
    assert "2 ranks" in shown(hosts, TENSORFLOW)[0]


def test_keras(hosts: Hosts) -> None:
    assert "tensorflow: 2 rank(s)" in shown(hosts, KERAS)[0]


@pytest.fixture
def nodes() -> Iterator[Network]:
    """The document's hosts."""
    reason = why_absent()
    if reason is not None:
        pytest.skip(reason)
    made = Network(len(NODES), NODES)
    yield made
    made.close()


@pytest.mark.parametrize(
    "line", [COMPUTE, DISPATCHERS, TRAINING_SIDE], ids=["one dispatcher", "dispatchers 2", "training side"]
)
def test_the_data_service_runs_on_hosts_of_its_own(line: str, nodes: Network, tmp_path: Path) -> None:
    if not importlib.util.find_spec("tensorflow"):
        pytest.skip("TensorFlow is not installed.")
    jobs = serve_and_train(nodes, tmp_path, line)
    assert (jobs.trained.code, jobs.served.code) == (0, 0), jobs
    assert any("equal on all ranks: True" in line for line in jobs.trained.out)
    assert not (tmp_path / "compute.json").exists()


SERVICE = """
import sys
from horovod.tensorflow.data.service import ComputeService
service = ComputeService(1, 2, "compute", 60, ("", sys.argv[1]))
service.config.write(sys.argv[2])
print(service._presence.wait_for_end(), flush=True)
"""
MEMBER = """
import sys
from horovod.tensorflow.data.config import TfDataServiceConfig
presence = TfDataServiceConfig.read(sys.argv[2], wait_for_file_creation=True).compute_client().join("compute", 1)
open(f"{sys.argv[2]}.here", "x")
print(presence.wait_for_end(), flush=True)
"""


def test_a_host_that_is_cut_off_from_a_data_service_is_noticed_on_both_sides(hosts: Hosts, tmp_path: Path) -> None:
    if not importlib.util.find_spec("tensorflow"):
        pytest.skip("TensorFlow is not installed.")
    network, config = hosts.network, tmp_path / "compute.json"
    arguments = [network[1].address, str(config)]
    both = [
        hosts.start_program([sys.executable, "-c", text, *arguments], on=number)
        for number, text in ((1, SERVICE), (2, MEMBER))
    ]
    while not Path(f"{config}.here").exists():
        assert all(each.entered.poll() is None for each in both), [each.end() for each in both]
        time.sleep(0.05)
    began_s = time.monotonic()
    network.cut(network[2])
    try:
        service, member = (hosts.ended(each, began_s) for each in both)
    finally:
        network.join(network[2])
    assert any("Compute rank 1 (host2, pid" in line and "died" in line for line in service.out), service
    assert any("rank 0 of the compute job, which runs it, is gone" in line for line in member.out), member
    assert 4.5 < service.seconds < 20 > member.seconds > 4.5, (service, member)
