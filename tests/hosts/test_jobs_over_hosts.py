"""What a job over several hosts is like: variables, output, exit codes, signals; as on one host, where it can be."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from .conftest import Hosts, python

SHOW = """
    import json, os, socket, sys
    names = [name for name in os.environ if "HOROVOD" in name or name in ("COLOUR", "SSH_AUTH_SOCK")]
    print(json.dumps({**{name: os.environ[name] for name in names}, "host": socket.gethostname(), "cwd": os.getcwd()}))
"""


def shown(lines: list[str]) -> list[dict[str, str]]:
    """What the ranks have printed, in order of ranks."""
    found = [json.loads(line.partition(":")[2]) for line in lines]
    return sorted(found, key=lambda each: int(each["HOROVOD_RANK"]))


def test_every_rank_knows_its_place(hosts: Hosts, tmp_path: Path) -> None:
    own = {"COLOUR": "blue 'n\" green\n$HOME", "SSH_AUTH_SOCK": "/nowhere"}
    ended = hosts("-np 5 -H host1:2,host2:2,host3:2", python(SHOW), environ=own, cwd=tmp_path)
    ranks = shown(ended.out)
    assert ended.code == 0
    assert [rank["host"] for rank in ranks] == ["host1", "host1", "host2", "host2", "host3"]
    assert [rank["HOROVOD_HOSTNAME"] for rank in ranks] == [rank["host"] for rank in ranks]
    assert [rank["HOROVOD_LOCAL_RANK"] for rank in ranks] == ["0", "1", "0", "1", "0"]
    assert [rank["HOROVOD_CROSS_SIZE"] for rank in ranks] == ["3", "2", "3", "2", "3"]
    assert [rank["_HOROVOD_ADDRESS"] for rank in ranks] == ["10.77.0.11"] * 2 + ["10.77.0.12"] * 2 + ["10.77.0.13"]
    assert len({rank["_HOROVOD_SECRET_KEY"] for rank in ranks}) == 1
    assert len(bytes.fromhex(ranks[0]["_HOROVOD_SECRET_KEY"])) == 32
    assert len({rank["HOROVOD_JOB_ID"] for rank in ranks}) == 1
    assert len({rank["HOROVOD_RENDEZVOUS_DIR"] for rank in ranks}) == 3
    assert {rank["COLOUR"] for rank in ranks} == {own["COLOUR"]}
    assert [rank.get("SSH_AUTH_SOCK") for rank in ranks] == ["/nowhere"] * 2 + [None] * 3
    assert {rank["cwd"] for rank in ranks} == {str(tmp_path)}


def test_the_launcher_s_host_need_not_take_part(hosts: Hosts) -> None:
    ranks = shown(hosts("-np 2 -H host2:1,host3:1", python(SHOW)).out)
    assert [(rank["host"], rank["_HOROVOD_ADDRESS"]) for rank in ranks] == [
        ("host2", "10.77.0.12"),
        ("host3", "10.77.0.13"),
    ]


@pytest.mark.slow
def test_addresses_are_ipv6_where_hosts_are_named_by_it(hosts: Hosts) -> None:
    ranks = shown(hosts("-np 3 -H localhost:1,[fd77::c]:1,host3-6:1", python(SHOW)).out)
    assert [rank["_HOROVOD_ADDRESS"] for rank in ranks] == ["fd77::b", "fd77::c", "fd77::d"]


@pytest.mark.slow
def test_several_names_of_this_machine_are_one_host(hosts: Hosts) -> None:
    ranks = shown(hosts("-np 3 -H localhost:1,host2:1,127.0.0.1:1", python(SHOW)).out)
    assert [(rank["host"], rank["HOROVOD_LOCAL_SIZE"]) for rank in ranks] == [("host1", "2")] * 2 + [("host2", "1")]


def test_a_hostfile_will_do(hosts: Hosts, tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# two hosts\n\nhost2 slots=1\n[fd77::d]:1\n")
    assert [rank["host"] for rank in shown(hosts(f"-np 2 --hostfile {path}", python(SHOW)).out)] == ["host2", "host3"]


@pytest.mark.parametrize(("rank", "code"), [(0, 3), (1, 7), (2, 130)])
def test_the_culprit_is_named_and_gives_its_code(hosts: Hosts, rank: int, code: int) -> None:
    program = f"""
        import os, sys, time
        if os.environ["HOROVOD_RANK"] == "{rank}":
            print("oh dear", file=sys.stderr)
            sys.exit({code})
        time.sleep(100)
    """
    ended = hosts("-np 3 -H host1:1,host2:1,host3:1", python(program))
    assert ended.code == code
    assert f"[{rank}]<stderr>:oh dear" in ended.err
    assert ended.err[-1].startswith(f"horovodrun: rank {rank} (host{rank + 1}, pid ")
    assert f"exited with code {code} after" in ended.err[-1]
    assert ended.seconds < 10.0


@pytest.mark.slow
def test_output_comes_whole_and_in_order(hosts: Hosts, tmp_path: Path) -> None:
    program = """
        import os, sys
        rank = os.environ["HOROVOD_RANK"]
        for number in range(20000):
            print(f"{rank} line {number} é")
        print("no end of line", end="", file=sys.stderr)
    """
    folder = tmp_path / "out"
    ended = hosts(f"-np 2 -H host1:1,host2:1 --output-filename {folder}", python(program))
    assert ended.code == 0
    for rank in (0, 1):
        lines = [f"{rank} line {number} é" for number in range(20000)]
        prefix = f"[{rank}]<stdout>:"
        assert [line[len(prefix) :] for line in ended.out if line.startswith(prefix)] == lines
        assert (folder / f"rank.{rank}" / "stdout").read_text().splitlines() == lines
        assert f"[{rank}]<stderr>:no end of line" in ended.err


@pytest.mark.slow
def test_a_slow_reader_slows_the_ranks_and_nothing_else(hosts: Hosts) -> None:
    program = """
        import os, sys
        for _ in range(400):
            sys.stdout.write("x" * 65535 + chr(10))
    """
    running = hosts.start("-np 2 -H host1:1,host2:1", python(program))
    assert running.entered.stdout is not None
    taken = 0
    signal.sigtimedwait([], 6.0)  # longer than either side would wait for a sign of life
    while data := running.entered.stdout.read(1 << 20):
        taken += len(data)
    assert hosts.end(running).code == 0
    assert taken > 2 * 400 * 65536


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_launcher_reaches_every_rank(hosts: Hosts, number: signal.Signals) -> None:
    program = """
        import os, signal, time
        def end(number, frame):
            os.write(1, b"ended by %d" % number)
            os._exit(0)
        signal.signal(signal.SIGINT, end)
        signal.signal(signal.SIGTERM, end)
        print("ready", flush=True)
        time.sleep(100)
    """
    running = hosts.start("-np 2 -H host1:1,host2:1", python(program))
    assert running.entered.stdout is not None
    for _ in range(2):
        assert b"ready" in running.entered.stdout.readline()
    running.signal(number)
    ended = hosts.end(running)
    assert sorted(ended.out) == [f"[{rank}]<stdout>:ended by {int(number)}" for rank in (0, 1)], ended.err
    assert ended.code == 128 + number
    assert f"stopped by {number.name}; no rank is left." in ended.err[-1]


@pytest.mark.slow
def test_a_second_signal_kills(hosts: Hosts) -> None:
    program = """
        import signal, time
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("ready", flush=True)
        time.sleep(100)
    """
    running = hosts.start("-np 2 -H host1:1,host2:1", python(program))
    assert running.entered.stdout is not None
    for _ in range(2):
        running.entered.stdout.readline()
    running.signal(signal.SIGINT)
    running.signal(signal.SIGINT)
    assert hosts.end(running, patience_s=10.0).code == 128 + signal.SIGINT


def test_a_function_goes_to_all_hosts_and_results_come_back(hosts: Hosts, tmp_path: Path) -> None:
    script = tmp_path / "call.py"
    script.write_text(
        "import os, socket, horovod\n"
        "blob = bytes(3 << 20)\n"
        "def task(factor):\n"
        "    return socket.gethostname(), int(os.environ['HOROVOD_RANK']) * factor, blob\n"
        "found = horovod.run(task, (10,), num_proc=3, hosts='host1:1,host2:1,host3:1')\n"
        "print([each[:2] for each in found], all(each[2] == blob for each in found))\n"
        "def bad():\n"
        "    if os.environ['HOROVOD_RANK'] == '1': raise KeyError('what')\n"
        "try:\n"
        "    horovod.run(bad, num_proc=2, hosts='host1:1,host2:1')\n"
        "except RuntimeError as error:\n"
        "    print(error)\n"
    )
    done = hosts.network[1].start([sys.executable, str(script)], hosts.environ).end()
    lines = done.stdout.decode().splitlines()
    assert lines[0] == "[('host1', 0), ('host2', 10), ('host3', 20)] True", done.stderr.decode()
    assert lines[1].startswith("horovod.run: rank 1 (host2, pid ")
    assert "KeyError: 'what'" in lines


@pytest.mark.slow
def test_a_failed_job_starts_again_on_all_hosts(hosts: Hosts, tmp_path: Path) -> None:
    program = """
        import ctypes, os
        count, rank = os.environ["HOROVOD_RESTART_COUNT"], os.environ["HOROVOD_RANK"]
        print("start", count, os.environ["_HOROVOD_SECRET_KEY"], flush=True)
        if (count, rank) == ("0", "1"):
            ctypes.string_at(0)
    """
    folder = tmp_path / "out"
    options = f"-np 3 -H host1:1,host2:1,host3:1 --max-restarts 1 --ranks 0,2 --output-filename {folder}"
    ended = hosts(options, [word for word in python(program) if word != "-I"])  # it hears of no variable with -I
    assert ended.code == 0
    starts = {rank: (folder / f"rank.{rank}/stdout").read_text().splitlines() for rank in range(3)}
    assert [line.split()[1] for line in starts[1]] == ["0", "1"]
    assert len({line.split()[2] for lines in starts.values() for line in lines}) == 2
    assert not any(line.startswith("[1]") for line in ended.out + ended.err)
    story = "\n".join(ended.err)
    assert "horovodrun: rank 1 (host2, pid " in story
    assert "was killed by signal 11 (SIGSEGV)" in story
    assert "  Fatal Python error: Segmentation fault" in story  # its last lines, though it is not shown
    assert "horovodrun: all ranks are started again (restart 1 of 1)." in ended.err
