"""What schedulers say of an allocation, from texts to hosts; and what horovodrun makes of it."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod._core.errors import InvalidArgumentError
from horovod.runner.allocations import base, host_lists
from horovod.runner.allocations.base import Allocation, Sources
from horovod.runner.allocations.choose import allocation
from horovod.runner.allocations.flux import from_resources
from horovod.runner.job import Job, effective_settings, make_job
from horovod.runner.machines.hosts import Host
from horovod.runner.options import flags

SLURM = {"SLURM_JOB_ID": "41", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_TASKS_PER_NODE": "2(x2),1"}
NO_SOURCES = Sources(lambda path: pytest.fail(f"reads {path}"), lambda command: pytest.fail(f"runs {command}"))


def files(**contents: str) -> Sources:
    return Sources(lambda path: contents[path], NO_SOURCES.answer)


def hosts(environ: dict[str, str], sources: Sources = NO_SOURCES) -> list[str]:
    found = allocation(environ, sources)
    assert found is not None
    return [host.to_string() for host in found.hosts]


def job(line: str, environ: dict[str, str]) -> Job:
    parsed = flags.parse(shlex.split(line))
    return make_job(effective_settings(parsed.values, "flag", environ), parsed.command, environ, "/")


def places(line: str, environ: dict[str, str]) -> list[str]:
    return [slot.hostname for slot in job(line, environ).slots]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node1", ["node1"]),
        ("node[1-3,7]", ["node1", "node2", "node3", "node7"]),
        ("node[08-11],login", ["node08", "node09", "node10", "node11", "login"]),
        ("b2,a1, a0", ["b2", "a1", "a0"]),
        ("r[1-2]c[01-02]-ib", ["r1c01-ib", "r1c02-ib", "r2c01-ib", "r2c02-ib"]),
        ("x[9-10]", ["x9", "x10"]),
    ],
)
def test_a_list_of_hosts(text: str, names: list[str]) -> None:
    assert host_lists.expand(text, "LIST") == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "LIST: a name is missing between commas"),
        ("a,,b", "LIST: a name is missing between commas"),
        ("n[1-3", "LIST: a bracket is not closed"),
        ("n1-3]", "LIST: unexpected bracket at ']'"),
        ("n[1[2]]", "LIST: unexpected bracket at '[2]]'"),
        ("n[]", "LIST: '' is neither a number nor a range"),
        ("n[a-c]", "LIST: 'a-c' is neither a number nor a range"),
        ("n[3-1]", "LIST: the range '3-1' runs backwards"),
        ("n[0-99999999]", "LIST names more than 65536 hosts"),
        ("n[1-999][1-999]", "LIST names more than 65536 hosts"),
        (",".join(["n[1-60000]"] * 2), "LIST names more than 65536 hosts"),
        ("n" * (1 << 20 | 1), "LIST is longer than 1048576 characters"),
    ],
)
def test_a_bad_list_of_hosts(text: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        host_lists.expand(text, "LIST")
    assert message in str(caught.value)


RANGES = st.lists(
    st.tuples(st.integers(0, 1200), st.integers(0, 12), st.integers(1, 5)).map(
        lambda drawn: (str(drawn[0]).zfill(drawn[2]), drawn[1])
    ),
    min_size=1,
    max_size=4,
)
WORDS = st.text("abcxyz-", min_size=1, max_size=4)


@given(st.lists(st.tuples(WORDS, st.none() | RANGES, st.sampled_from(["", "-ib", ".local"])), min_size=1, max_size=5))
def test_what_was_written_as_a_list_is_read_back(
    parts: list[tuple[str, list[tuple[str, int]] | None, str]],
) -> None:
    written, names = [], []
    for prefix, ranges, suffix in parts:
        if ranges is None:
            written.append(prefix + suffix)
            names.append(prefix + suffix)
            continue
        pieces = []
        for first, more in ranges:
            numbers = [f"{number:0{len(first)}d}" for number in range(int(first), int(first) + more + 1)]
            pieces.append(first if not more else f"{first}-{numbers[-1]}")
            names += [f"{prefix}{number}{suffix}" for number in numbers]
        written.append(f"{prefix}[{','.join(pieces)}]{suffix}")
    assert host_lists.expand(",".join(written), "LIST") == names


@given(st.text("n[]-,0123 (x)", max_size=40))
def test_any_text_is_a_list_or_refused(text: str) -> None:
    try:
        names = host_lists.expand(text, "LIST")
    except InvalidArgumentError as error:
        assert str(error).startswith("LIST")
    else:
        assert names and all("[" not in name and "]" not in name for name in names)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 3)), min_size=1, max_size=5))
def test_slurms_tasks_are_counted_per_node(runs: list[tuple[int, int]]) -> None:
    nodes = sum(length for _, length in runs)
    text = ",".join(f"{count}(x{length})" if length > 1 else str(count) for count, length in runs)
    environ = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": f"n[1-{nodes}]", "SLURM_TASKS_PER_NODE": text}
    counts = [count for count, length in runs for _ in range(length)]
    assert hosts(environ) == [f"n{number}:{count}" for number, count in enumerate(counts, 1)]


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"SLURM_TASKS_PER_NODE": "2(x2)"}, "has numbers for 2 nodes, but SLURM_JOB_NODELIST names 3"),
        ({"SLURM_TASKS_PER_NODE": "many"}, "must be a list like '2(x3),1'. Received: 'many'"),
        ({"SLURM_TASKS_PER_NODE": "1(x70000)"}, "must be a list like '2(x3),1'. Received: '1(x70000)'"),
        ({"SLURM_TASKS_PER_NODE": "0(x3)"}, "names no host with a slot"),
        ({"SLURM_JOB_NODELIST": "n[1-2],$x"}, "a host name has letters"),
        ({"SLURM_HET_SIZE": "2"}, "is heterogeneous: it has 2 components"),
        (
            {"SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_LOCALID": "1", "SLURM_STEP_NUM_TASKS": "4"},
            "srun has started horovodrun 4 times",
        ),
    ],
)
def test_an_allocation_of_slurm_that_cannot_be_taken(environ: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        allocation({**SLURM, **environ}, NO_SOURCES)
    assert message in str(caught.value)
    # -H says where, so that nothing of this is asked.
    assert places("-np 1 -H localhost:2 x", {**SLURM, **environ}) == ["localhost"]


def test_a_name_that_stands_twice_in_slurms_list_keeps_all_its_slots() -> None:
    doubled = {**SLURM, "SLURM_JOB_NODELIST": "n1,n2,n1", "SLURM_TASKS_PER_NODE": "2,3,4"}
    assert hosts(doubled) == ["n1:6", "n2:3"]


def test_slurm_without_a_number_of_tasks() -> None:
    with pytest.raises(InvalidArgumentError, match="SLURM_TASKS_PER_NODE is not, so the slots are not known"):
        allocation({name: text for name, text in SLURM.items() if "TASKS" not in name}, NO_SOURCES)


def test_an_interactive_step_of_one_task_knows_one_node_only() -> None:
    step = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_STEP_NUM_TASKS": "1"}
    told = {**SLURM, **step, "SLURM_TASKS_PER_NODE": "1"}  # srun sets it anew
    assert hosts({**told, "SLURM_JOB_NODELIST": "n1"}) == ["n1:1"]
    with pytest.raises(InvalidArgumentError, match="in a step, srun reports the tasks of this step only. Start"):
        allocation(told, NO_SOURCES)


def test_lsf() -> None:
    told = {"LSB_JOBID": "7", "LSB_HOSTS": "a a b", "LSB_MCPU_HOSTS": "a 2 b 1 a 1", "LSB_DJOB_HOSTFILE": "list"}
    assert hosts(told, files(list="b\na\na\n\n")) == ["b:1", "a:2"]
    del told["LSB_DJOB_HOSTFILE"]
    assert hosts(told) == ["a:3", "b:1"]
    assert hosts({"LSB_JOBID": "7", "LSB_HOSTS": "a a b"}) == ["a:2", "b:1"]
    assert allocation({"LSB_JOBID": "7", "LSB_HOSTS": " "}, NO_SOURCES) is None


def test_the_launch_node_of_lsf_with_csm_takes_no_rank() -> None:
    told = {"LSB_JOBID": "7", "LSB_MCPU_HOSTS": "batch5 1 n1 42 n2 42", "CSM_ALLOCATION_ID": "9"}
    assert hosts(told) == ["n1:42", "n2:42"]
    assert hosts({**told, "LSB_MCPU_HOSTS": "n1 42"}) == ["n1:42"]


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ("a 2 b", "LSB_MCPU_HOSTS ends with 'b', which has no number of slots"),
        ("a two", "must be names, each with its number of slots"),
        ("a 12345678", "must be names, each with its number of slots"),
        ("a 9999999", "at most 65536 hosts and 1048576 slots are allowed"),
        ("-oProxyCommand=x 2", "a host name has letters"),
    ],
)
def test_bad_pairs_of_lsf(pairs: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        allocation({"LSB_JOBID": "7", "LSB_MCPU_HOSTS": pairs}, NO_SOURCES)
    assert message in str(caught.value)


@given(st.lists(st.text("ab-1 _.,", max_size=6) | st.integers(-1, 300).map(str), max_size=6))
def test_any_pairs_of_lsf_are_hosts_or_refused(words: list[str]) -> None:
    try:
        found = allocation({"LSB_JOBID": "7", "LSB_MCPU_HOSTS": " ".join(words)}, NO_SOURCES)
    except InvalidArgumentError as error:
        assert str(error).startswith("LSB_MCPU_HOSTS")
    else:
        assert found is None or all(host.slots > 0 for host in found.hosts)


def test_pbs() -> None:
    told = {"PBS_JOBID": "3.server", "PBS_NODEFILE": "nodes"}
    assert hosts(told, files(nodes="a\na\n b \n\n")) == ["a:2", "b:1"]
    assert allocation({"PBS_JOBID": "3.server"}, NO_SOURCES) is None
    with pytest.raises(InvalidArgumentError, match="nodes names no host with a slot"):
        allocation(told, files(nodes="\n"))


def test_a_named_file_is_read_within_bounds(tmp_path: Path) -> None:
    told = {"PBS_JOBID": "3", "PBS_NODEFILE": str(tmp_path / "nodes")}
    with pytest.raises(InvalidArgumentError, match="nodes cannot be read: No such file"):
        allocation(told)
    (tmp_path / "nodes").write_bytes(b"a\nb\xff\n")
    with pytest.raises(InvalidArgumentError, match="nodes is not text"):
        allocation(told)
    (tmp_path / "nodes").write_text("a\na\n")
    assert hosts(told, base.SOURCES) == ["a:2"]
    with (tmp_path / "nodes").open("wb") as file:
        os.truncate(file.fileno(), 17 << 20)
    with pytest.raises(InvalidArgumentError, match="is larger than 16 MiB"):
        allocation(told)


def resources(*entries: tuple[str, dict[str, str]], names: Sequence[str]) -> str:
    lite = [{"rank": rank, "children": children} for rank, children in entries]
    return json.dumps({"version": 1, "execution": {"R_lite": lite, "nodelist": list(names)}})


def test_flux() -> None:
    told = {"FLUX_URI": "local:///x", "FLUX_ENCLOSING_ID": "f1"}
    answers = Sources(
        NO_SOURCES.file, lambda command: resources(("0-1", {"core": "0-3,6"}), names=["n[1-2]"]) if command else ""
    )
    assert hosts(told, answers) == ["n1:5", "n2:5"]
    assert allocation({**told, "FLUX_TASK_RANK": "0"}, NO_SOURCES) is None


def test_flux_counts_gpus_where_there_are_some_and_goes_by_rank() -> None:
    text = resources(("0,2", {"core": "0-7", "gpu": "0-1"}), ("1", {"core": "0-7"}), names=["a,b", "c"])
    assert from_resources(text) == {"a": 2, "b": 0, "c": 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no JSON", "is not a resource set of version 1 of Flux RFC 20: JSONDecodeError"),
        ("[]", "is not a resource set"),
        ('{"execution": {"R_lite": [{"rank": "0"}], "nodelist": ["a"]}}', "KeyError: 'children'"),
        (resources(("0-1", {"core": "0"}), names=["a"]), "names 1 hosts, but has resources of 2"),
        (resources(("0", {"core": "3-1"}), names=["a"]), "the range '3-1' runs backwards"),
    ],
)
def test_a_bad_answer_of_flux(text: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        from_resources(text)
    assert message in str(caught.value)


LEAVES = st.none() | st.integers(-2, 3) | st.text("0-3,[]a", max_size=5)
KEYS = st.sampled_from(["execution", "R_lite", "nodelist", "rank", "children", "core", "gpu"])


@given(st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4)))
def test_any_resources_are_hosts_or_refused(tree: object) -> None:
    for execution in (tree, {"R_lite": tree, "nodelist": ["a"]}, {"R_lite": [tree], "nodelist": [tree]}):
        try:
            found = from_resources(json.dumps({"execution": execution}))
        except InvalidArgumentError as error:
            assert str(error).startswith("The output of flux resource R")
        else:
            assert all(isinstance(count, int) for count in found.values())


def test_a_command_that_gives_no_answer_is_reported() -> None:
    lost = "so the hosts of this allocation are not known. Name them yourself with -H"
    with pytest.raises(InvalidArgumentError, match=rf"^/no/flux cannot be run \(No such file or directory\), {lost}"):
        base.SOURCES.answer(["/no/flux"])
    with pytest.raises(InvalidArgumentError, match=rf"failed with code 3 \(broker gone\), {lost}"):
        base.SOURCES.answer(["sh", "-c", "echo broker gone >&2; exit 3"])
    assert base.SOURCES.answer(["echo", "yes"]) == "yes\n"


def test_all_slots_of_an_allocation_are_taken_and_n_of_them_from_the_first_on() -> None:
    assert places("x", SLURM) == ["n1", "n1", "n2", "n2", "n3"]
    assert places("-np auto x", SLURM) == ["n1", "n1", "n2", "n2", "n3"]
    assert places("-np 3 x", SLURM) == ["n1", "n1", "n2"]
    with pytest.raises(InvalidArgumentError, match=r"6 processes need 6 slots, but the hosts have 5 \(n1:2"):
        places("-np 6 x", SLURM)


def test_named_hosts_win_over_an_allocation(tmp_path: Path) -> None:
    assert places("-np 2 -H other:2 x", SLURM) == ["other", "other"]
    (tmp_path / "hosts").write_text("third slots=1\n")
    assert places(f"-np 1 --hostfile {tmp_path}/hosts x", SLURM) == ["third"]


def test_more_ranks_than_slots_on_the_only_host_are_placed_and_remarked_upon() -> None:
    one = {"SLURM_JOB_ID": "41", "SLURM_JOB_NODELIST": "n1", "SLURM_TASKS_PER_NODE": "1"}
    made = job("-np 4 x", one)
    assert [slot.hostname for slot in made.slots] == ["n1"] * 4
    assert "4 ranks share Slurm's allocation of 1 slot on n1." in made.remarks
    assert not any("allocation" in text for text in job("-np 1 x", one).remarks)


def test_the_choice_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "horovod.runner"):
        job("-np 3 x", SLURM)
    assert (
        "3 ranks by Slurm's allocation 41 (n1:2, n2:2, n3:1; from SLURM_JOB_NODELIST and SLURM_TASKS_PER_NODE)"
        in caplog.text
    )


def test_a_large_allocation_in_words_is_short() -> None:
    many = Allocation("Slurm", "1", tuple(Host(f"n{number}", 2) for number in range(100)), "X")
    assert many.words().endswith("n7:2, ... 100 hosts; from X)")


def test_outside_of_allocations_nothing_is_asked() -> None:
    assert allocation({}, NO_SOURCES) is None
    assert allocation({"FLUX_URI": "local:///run/flux/local"}, NO_SOURCES) is None
    assert places("-np 2 x", {}) == ["localhost", "localhost"]
