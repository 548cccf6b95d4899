"""The contract suite: what every adapter promises, on every number of ranks, with the real engine and with the fake
one.

One job per world size and adapter runs all cases and facts in real processes under our own launcher (`contract_job`,
`worker`); the variants repeat parts of them under settings that take other ways through the engine. The fake
engine's ranks are threads of this process.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import contract_job
import pytest
from case_runner import run_cases
from cases import all_cases, eight_bit_cases
from contract_job import run_job
from fakes.ranks import adopt, run_ranks
from jobs.gpus import gpus, rocm
from semantics import SEMANTICS
from semantics_join import JOIN
from semantics_sets import DYNAMIC
from targets import Env, numpy_target
from worker import run_facts

PARTS = ("cases", "semantics", "sets", "join", "life")

VARIANTS = {
    # name: (ranks, parts, environment)
    "no launcher": (0, PARTS, {}),
    "static sets": (3, ("static",), {}),
    "small cache": (3, ("semantics", "sets", "join"), {"HOROVOD_CACHE_CAPACITY": "4"}),
    "no cache": (2, ("semantics", "sets", "join"), {"HOROVOD_CACHE_CAPACITY": "0"}),
    "no fusion": (3, ("cases",), {"HOROVOD_FUSION_THRESHOLD": "0"}),
    "groups alone": (3, ("semantics", "join"), {"HOROVOD_DISABLE_GROUP_FUSION": "1"}),
    "deterministic": (2, ("cases", "semantics"), {"HOROVOD_DETERMINISTIC": "1"}),
    "linger": (2, ("semantics", "sets", "join"), {"HOROVOD_CYCLE_TIME": "1"}),
    "streaming stores": (2, ("cases",), {"HOROVOD_STORE_MODE": "streaming"}),
    "tcp": (3, PARTS, {"HOROVOD_TRANSPORT": "tcp"}),
    "no lane": (2, ("semantics", "life"), {"HOROVOD_LANE": "0"}),
}


def _free_bytes() -> int:
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _expected_counts(size: int, parts: tuple[str, ...]) -> dict[str, int]:
    counts = {"cases": sum(1 for _ in all_cases(size)), "eight bits": sum(1 for _ in eight_bit_cases(size))}
    counts |= {"semantics": len(SEMANTICS), "sets": len(DYNAMIC)}
    counts["join"] = len(JOIN)
    return {part: counts[part] for part in parts if part in counts}


def _warm(target: str) -> str:
    return target if target in ("numpy", "torch") else ""  # the fakes of GPUs are found when a process starts


def _check(reports: list[dict[str, Any]], size: int, parts: tuple[str, ...]) -> None:
    """Every rank has run everything."""
    for report in reports:
        run = {part: counts["run"] for part, counts in report["counts"].items()}
        assert run.items() >= _expected_counts(size, parts).items(), report


@pytest.mark.parametrize(
    ("target", "size"),
    [("numpy", 1), ("numpy", 2), ("numpy", 3), ("numpy", 4), ("torch", 1), ("torch", 2)]
    + [pytest.param(target, n, marks=pytest.mark.slow) for target, n in (("torch", 3), ("numpy", 7))],
)
def test_adapter(target: str, size: int, tmp_path: Path) -> None:
    _check(run_job(size, target, PARTS, tmp_path), size, PARTS)  # with ranks that start as a user's do


@pytest.mark.slow
@pytest.mark.parametrize("size", [4, 7])
def test_torch_on_more_ranks(size: int, tmp_path: Path) -> None:
    _check(run_job(size, "torch", PARTS, tmp_path, warm="torch"), size, PARTS)


@pytest.mark.slow
def test_torch_without_the_lane(tmp_path: Path) -> None:
    parts = ("semantics", "life")
    _check(run_job(2, "torch", parts, tmp_path, {"HOROVOD_LANE": "0"}, warm="torch"), 2, parts)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "ranks", "environment"),
    [
        ("numpy", 4, {}),
        ("torch", 2, {}),
        ("torch", 3, {"HOROVOD_TRANSPORT": "tcp"}),
        ("numpy", (2, 2), {}),
        ("numpy", (1, 2, 1), {}),
    ],
    ids=str,
)
def test_eight_bits(target: str, ranks: Any, environment: dict[str, str], tmp_path: Path) -> None:
    size = sum(ranks) if isinstance(ranks, tuple) else ranks
    _check(run_job(ranks, target, ("eight bits",), tmp_path, environment, warm=_warm(target)), size, ("eight bits",))


@pytest.mark.parametrize("variant", VARIANTS)
def test_variant(variant: str, tmp_path: Path) -> None:
    size, parts, environment = VARIANTS[variant]
    _check(run_job(size, "numpy", parts, tmp_path, environment, warm="numpy"), max(size, 1), parts)


ALL_CONNECTED, FEW_CONNECTED = "32", "0"  # connected when the job starts; others when they need it
# (ranks of each host, adapter, how connected): of equal and unequal numbers, with hosts of one rank and without.
ON_HOSTS = [
    ((1, 1), "numpy", FEW_CONNECTED),
    ((2, 1), "torch", ALL_CONNECTED),
    ((1, 2, 1), "numpy", FEW_CONNECTED),
    pytest.param((2, 2), "numpy", ALL_CONNECTED, marks=pytest.mark.slow),
    pytest.param((1, 1), "numpy", ALL_CONNECTED, marks=pytest.mark.slow),
    pytest.param((2, 1), "torch", FEW_CONNECTED, marks=pytest.mark.slow),
    pytest.param((2, 2), "numpy", FEW_CONNECTED, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("hosts", "target", "full_mesh"), ON_HOSTS, ids=lambda value: str(value))
def test_several_hosts(hosts: tuple[int, ...], target: str, full_mesh: str, tmp_path: Path) -> None:
    environment = {"HOROVOD_FULL_MESH_RANKS": full_mesh}
    _check(run_job(hosts, target, PARTS, tmp_path, environment, warm=_warm(target)), sum(hosts), PARTS)


# (ranks, parts, variables): NCCL; the way through the host; two ranks that share a GPU.
ON_GPUS = {
    "alone": (1, PARTS, {}),
    "nccl": (2, PARTS, {}),
    "through the host": (2, PARTS, {"HOROVOD_GPU_OPERATIONS": "GLOO"}),
    "one GPU": (2, ("cases", "semantics"), {"HVD_TEST_GPU": "0"}),
    "two streams": (2, ("semantics", "sets", "join"), {"HOROVOD_NUM_NCCL_STREAMS": "2"}),
}


@pytest.mark.parametrize("way", ON_GPUS)
def test_on_gpus(way: str, tmp_path: Path) -> None:
    size, parts, environment = ON_GPUS[way]
    _check(run_job(size, "gpu", parts, tmp_path, gpus(tmp_path / "libraries", **environment)), size, parts)


def test_on_gpus_of_amd(tmp_path: Path) -> None:
    parts = ("cases", "semantics")
    _check(run_job(2, "gpu", parts, tmp_path, rocm(tmp_path / "libraries")), 2, parts)


@pytest.mark.slow
@pytest.mark.parametrize("way", ON_GPUS)
def test_on_gpus_of_amd_in_every_way(way: str, tmp_path: Path) -> None:
    size, parts, environment = ON_GPUS[way]
    _check(run_job(size, "gpu", parts, tmp_path, rocm(tmp_path / "libraries", **environment)), size, parts)


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [(3,), (1, 2), (2, 1, 1)], ids=str)
def test_on_gpus_of_several_hosts(hosts: tuple[int, ...], tmp_path: Path) -> None:
    _check(run_job(hosts, "gpu", PARTS, tmp_path, gpus(tmp_path / "libraries")), sum(hosts), PARTS)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, (2, 1)], ids=str)
def test_eight_bits_on_gpus(ranks: Any, tmp_path: Path) -> None:
    size = sum(ranks) if isinstance(ranks, tuple) else ranks
    _check(run_job(ranks, "gpu", ("eight bits",), tmp_path, gpus(tmp_path / "libraries")), size, ("eight bits",))


@pytest.mark.slow
def test_on_gpus_in_two_levels(tmp_path: Path) -> None:
    environment = {"HOROVOD_HIERARCHICAL_ALLREDUCE": "1"}
    _check(run_job((2, 2), "gpu", PARTS, tmp_path, gpus(tmp_path / "libraries", **environment)), 4, PARTS)


@pytest.mark.parametrize("size", (1, 2, 3, 4))
def test_fake_engine(size: int, tmp_path: Path) -> None:
    def body(rank: int) -> list[str]:
        env: Any = Env(numpy_target(), str(tmp_path), "fake")
        env.enter_thread = adopt()
        run_cases(env)
        run_facts(env, (*SEMANTICS, *DYNAMIC, *JOIN))
        failures: list[str] = env.failures
        return failures

    failures = [f"rank {rank}: {text}" for rank, texts in enumerate(run_ranks(size, body)) for text in texts]
    assert not failures, "\n".join(failures)


def _stress(size: int, seed: int, iterations: int, tmp_path: Path) -> None:
    # A small cache, of another size each time: full in the middle of everything.
    arguments = ("--seed", str(seed), "--iterations", str(iterations))
    environment = {"HOROVOD_CACHE_CAPACITY": str(4 + 3 * seed % 17)}
    for report in run_job(size, "numpy", arguments, tmp_path, environment, "stress.py", "numpy"):
        assert report["counts"]["stress"]["run"] == iterations


@pytest.mark.parametrize("size", [2, 3])
def test_stress(size: int, tmp_path: Path) -> None:
    _stress(size, seed=size, iterations=15, tmp_path=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [10, 11, *(pytest.param(n, marks=pytest.mark.exhaustive) for n in range(12, 16))])
@pytest.mark.parametrize("size", [2, 4, 7])
def test_long_stress(size: int, seed: int, tmp_path: Path) -> None:
    _stress(size, seed, iterations=60, tmp_path=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [(2, 2), (1, 2, 1), (3, 2)], ids=str)
def test_long_stress_on_hosts(hosts: tuple[int, ...], tmp_path: Path) -> None:
    arguments = ("--seed", str(sum(hosts)), "--iterations", "20")
    for report in run_job(hosts, "numpy", arguments, tmp_path, None, "stress.py", "numpy"):
        assert report["counts"]["stress"]["run"] == 20


@pytest.mark.slow
@pytest.mark.skipif(_free_bytes() < 12 << 30, reason="Not here: less than 12 GiB of memory are free.")
@pytest.mark.timeout(420)
def test_more_than_two_to_the_31_elements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract_job, "DEADLINE_S", 400.0)
    run_job(2, "numpy", ("big",), tmp_path)
