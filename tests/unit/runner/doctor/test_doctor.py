"""`horovodrun doctor`: the page from values, the deadlines, and one injected fault for each probe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import horovod
from horovod._core.errors import InvalidArgumentError
from horovod._core.settings import Settings
from horovod.runner import cli
from horovod.runner.doctor import choices, command, machine, network, page, software
from horovod.runner.doctor.examination import child, examine
from horovod.runner.doctor.findings import ABSENT, FACT, FAULT, WORKS, Finding, Probe, Section, size_text
from horovod.runner.mpi import kinds, limits
from horovod.runner.mpi.kinds import Implementation

SECTIONS = [
    Section("One", (Finding("good", WORKS, "fine"), Finding("gone", ABSENT), Finding("number", FACT, "3"))),
    Section("Two", (Finding("bad", FAULT, "broken\x1b[2J\nhere.", "Mend it."),)),
]
PAGE = """\
Horovod 9: doctor, today

1 problem:
    [!] Two, bad: broken [2J here. Mend it.

One:
    [X] good: fine
    [ ] gone
     -  number: 3

Two:
    [!] bad: broken [2J here."""


def named(found: list[Finding], name: str) -> Finding:
    (one,) = [finding for finding in found if finding.name.startswith(name)]
    return one


def script(place: Path, name: str, text: str) -> Path:
    """An executable."""
    path = place / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def under(before: str, code: str) -> list[Finding]:
    """What a probe finds in a process that is started through a shell line."""
    program = f"import json; from horovod.runner.doctor import machine; print(json.dumps({code}))"
    words = ["sh", "-c", f'{before} && exec "$0" -c "$1"', sys.executable, program]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    return [Finding(*one) for one in json.loads(done.stdout)]


def test_the_page_says_what_is_wrong_first_and_all_of_it_in_single_lines() -> None:
    assert page.text("9", "today", SECTIONS) == PAGE
    assert "No problem was found." in page.text("9", "today", SECTIONS[:1])


def test_json_has_the_same() -> None:
    tree = json.loads(page.as_json("9", "today", SECTIONS))
    assert (tree["horovod"], tree["when"], tree["problems"]) == ("9", "today", 1)
    assert [Section(s["title"], tuple(Finding(**f) for f in s["findings"])) for s in tree["sections"]] == SECTIONS


def test_sizes_have_the_unit_that_fits() -> None:
    assert [size_text(n) for n in (0, 1023, 1536, 24 << 30, 5 << 40)] == [
        "0 bytes", "1023 bytes", "1.5 KB", "24 GB", "5.0 TB"
    ]  # fmt: skip


def test_a_probe_that_hangs_or_fails_is_a_line_and_holds_nobody_up() -> None:
    def fails() -> list[Finding]:
        raise ValueError("no such luck")

    begun = time.monotonic()
    hangs, failed, good = examine(
        [
            Probe("hangs", lambda: time.sleep(30) or [], 0.2),
            Probe("fails", fails, 5),
            Probe("good", lambda: [Finding("x", WORKS)], 5),
        ]
    )
    assert time.monotonic() - begun < 3
    assert hangs.findings[0].state == FAULT and hangs.findings[0].fact == "no answer within 0.2 s"
    assert failed.findings[0].state == FAULT and failed.findings[0].fact == "ValueError: no such luck"
    assert good.findings == (Finding("x", WORKS),)


def test_a_child_is_killed_with_its_children_at_its_deadline(tmp_path: Path) -> None:
    begun = time.monotonic()
    answer = child(["sh", "-c", f"(sleep 30; touch {tmp_path}/late) & echo $! > {tmp_path}/pid; wait"], 0.5, os.environ)
    assert answer.code is None and time.monotonic() - begun < 5
    grandchild = int((tmp_path / "pid").read_text())
    state = Path(f"/proc/{grandchild}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


def test_how_a_child_died_is_reported() -> None:
    assert child(["sh", "-c", "kill -SEGV $$"], 5, os.environ).last_word == "it was killed by SIGSEGV"
    assert child(["sh", "-c", "echo why >&2; exit 3"], 5, os.environ).last_word == "why"


def test_fault_in_limits_few_open_files() -> None:
    few = named(under("ulimit -n 64", "machine.user_limits()"), "open files")
    assert few.state == FAULT and few.fact == "64 (ulimit -n)" and "256 or more" in few.remedy
    enough = named(under("ulimit -n 1024", "machine.user_limits()"), "open files")
    assert enough.state == WORKS


def test_fault_in_shared_memory_a_full_dev_shm() -> None:
    if subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode:
        pytest.skip("A mount namespace cannot be made here.")
    program = "import json; from horovod.runner.doctor import machine; print(json.dumps(machine.shared_memory()))"
    fill = "mount -t tmpfs -o size=64k none /dev/shm && head -c 65536 /dev/zero > /dev/shm/x"
    words = ["unshare", "-m", "sh", "-c", f'{fill} && exec "$0" -c "$1"', sys.executable, program]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    found = [Finding(*one) for one in json.loads(done.stdout)]
    assert named(found, "/dev/shm").state == FAULT
    assert named(found, "/dev/shm").fact == "full: 64 KB, 64 KB of it used"
    assert named(found, "memfd").state == WORKS


def test_fault_in_shared_memory_no_memfd(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refused(name: str) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "memfd_create", refused)
    found = machine.shared_memory(str(tmp_path))
    assert named(found, "memfd") == Finding(
        "memfd", FAULT, "memfd_create: [Errno 1] Operation not permitted", named(found, "memfd").remedy
    )
    assert named(found, "/dev/shm").fact == "No such file or directory"


def test_fault_in_the_core_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_LIBRARY", "/nowhere.so")
    (found,) = software.core()
    assert found.state == FAULT and "/nowhere.so: no such file" in found.fact


def test_the_core_and_its_backends_are_named() -> None:
    found = software.core()
    assert named(found, "libhorovod.so").state == WORKS and named(found, "backend host").state == WORKS


def test_fault_in_frameworks_one_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so.13: cannot open shared object file')")
    (tmp_path / "mxnet.py").write_text("raise SystemError('must not be imported: it is not asked for')")
    one = software.availability.Framework("PyTorch", "2.13.0", "")
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    monkeypatch.setattr(software.availability, "frameworks", lambda: [one])
    (found,) = software.frameworks(environ)
    assert found.state == FAULT and found.name == "PyTorch 2.13.0"
    assert found.fact == "OSError: libcudart.so.13: cannot open shared object file"
    assert "import torch, horovod.torch" in found.remedy


def test_fault_in_frameworks_one_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "numpy.py").write_text("import time; time.sleep(60)")
    monkeypatch.setattr(
        software.availability, "frameworks", lambda: [software.availability.Framework("NumPy", "2", "")]
    )
    monkeypatch.setattr(software, "FRAMEWORK_S", 0.5)
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    (found,) = software.frameworks(environ)
    assert found.state == FAULT and found.fact == "its import took more than 0.5 s"


def test_backends_of_gpus_start_with_a_tensor() -> None:
    found = {each.name: each for each in software.core()}
    assert found["backend nccl"].fact == "starts with a rank's first tensor on a GPU"
    assert found["backend host"].state == WORKS


def test_frameworks_are_imported_elsewhere() -> None:
    code = (
        "import os, sys; from horovod.runner.doctor import software; "
        "software.availability.frameworks = lambda: [software.availability.Framework('NumPy', '', '')]; "
        "print(software.frameworks(os.environ)[0].state, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "works False\n"


@pytest.mark.parametrize(
    ("says", "fact"),
    [
        ("echo 'mpirun (Open MPI) 3.1.3'", "mpirun (Open MPI) 3.1.3, {path}"),
        ("echo 'libhwloc is missing' >&2; exit 1", "{path} --version: libhwloc is missing"),
    ],
)
def test_fault_in_mpi_a_program(tmp_path: Path, says: str, fact: str) -> None:
    path = script(tmp_path, "mpirun", says)
    found = named(software.mpi({"PATH": str(tmp_path)}, str(tmp_path)), "mpirun")
    assert found.state == FAULT and found.fact == fact.format(path=path)


def test_every_check_names_the_same_versions_in_place_of_one_that_hangs(tmp_path: Path) -> None:
    script(tmp_path, "mpirun", "echo 'mpirun (Open MPI) 3.1.3'")
    found = named(software.mpi({"PATH": str(tmp_path)}, str(tmp_path)), "mpirun")
    assert [found.remedy] == limits.remarks(Implementation(kinds.OPEN_MPI, (3, 1, 3)))


def test_a_good_mpi_is_a_fact_and_a_broken_library_a_fault(tmp_path: Path) -> None:
    script(tmp_path, "mpirun", "echo 'mpirun (Open MPI) 5.0.11'")
    script(tmp_path, "srun", "echo 'no configuration' >&2; exit 1")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libmpi_abi.so.1").write_text("not a library")
    found = software.mpi({"PATH": str(tmp_path)}, str(tmp_path))
    assert named(found, "mpirun").state == FACT and named(found, "srun").state == ABSENT
    assert named(found, "libmpi_abi.so.1").state == FAULT and "(the MPI 5 standard ABI)" in found[-1].fact


def test_fault_in_the_network_a_missing_interface(tmp_path: Path) -> None:
    settings = Settings([("flag", {"network_interfaces": ("nosuch0",)})])
    found = network.interfaces(settings, str(tmp_path))
    assert named(found, "nosuch0").state == FAULT and "lo" in named(found, "nosuch0").remedy
    assert named(found, "lo").fact.startswith("127.0.0.1")


def test_infiniband_is_named_with_what_becomes_of_it(tmp_path: Path) -> None:
    (tmp_path / "sys/class/infiniband/mlx5_0").mkdir(parents=True)
    found = named(network.interfaces(Settings(), str(tmp_path)), "InfiniBand")
    assert found.state == FACT and found.fact.startswith("mlx5_0: Horovod's own data plane is TCP")
    assert "HOROVOD_CPU_OPERATIONS=mpi" in found.fact
    assert named(network.interfaces(Settings(), "/nowhere"), "InfiniBand").state == ABSENT


def test_infiniband_and_roce_are_distinguished_and_their_interfaces_named(tmp_path: Path) -> None:
    for device, link, state, net in (
        ("mlx5_0", "InfiniBand", "4: ACTIVE", "ib0"),
        ("mlx5_1", "Ethernet", "1: DOWN", ""),
    ):
        port = tmp_path / device / "ports/1"
        port.mkdir(parents=True)
        (port / "link_layer").write_text(f"{link}\n")
        (port / "state").write_text(f"{state}\n")
        (port / "rate").write_text("100 Gb/sec (4X EDR)\n")
        (tmp_path / device / "device/net" / net).mkdir(parents=True)
    all_of_them, first, second = network.verbs_devices(tmp_path)
    assert all_of_them.fact.startswith("mlx5_0, mlx5_1: ")
    assert first.fact == ("port 1: InfiniBand, active, 100 Gb/sec (4X EDR); TCP over ib0 (--network-interfaces)")
    assert second.fact == "port 1: RoCE, down, 100 Gb/sec (4X EDR); no TCP over it"


def test_fault_in_ssh_no_client_and_hosts_that_refuse(tmp_path: Path) -> None:
    settings = Settings([("flag", {"hosts": "server1:2,localhost:2"})])
    assert network.ssh(settings, {"PATH": str(tmp_path)})[0].state == FAULT
    assert network.ssh(Settings(), {"PATH": str(tmp_path)})[0].state == ABSENT
    script(tmp_path, "ssh", "echo 'you@server1: Permission denied (publickey).' >&2; exit 255")
    path = f"{tmp_path}:{os.environ['PATH']}"
    host = named(network.ssh(settings, {"PATH": path}), "server1")
    assert host.state == FAULT and host.fact.startswith("it refuses this user's key")


@pytest.mark.parametrize(("version", "state"), [(horovod.__version__, WORKS), ("0.28.1", FAULT)])
def test_hosts_are_asked_for_their_version(tmp_path: Path, version: str, state: str) -> None:
    script(tmp_path, "ssh", f'case "$1" in -V) echo OpenSSH >&2;; *) echo {version};; esac')
    settings = Settings([("flag", {"hosts": "server1:2"})])
    found = network.ssh(settings, {"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert named(found, "server1").state == state and version in named(found, "server1").fact


def test_fault_in_the_settings_is_named_with_its_source() -> None:
    environ = {"HOROVOD_CYCLE_TIME": "2", "HOROVOD_FUSION_TRESHOLD": "1", "_HOROVOD_SECRET_KEY": "deadbeef"}
    last = command.probes({"tcp": True}, environ)[-1]
    found = last.look()
    assert named(found, "cycle_time_ms").fact == "2 milliseconds (environment HOROVOD_CYCLE_TIME)"
    assert named(found, "tcp").fact == "1 (flag)"
    assert named(found, "without effect").fact.endswith("Did you mean HOROVOD_FUSION_THRESHOLD?")
    (wrong,) = command.probes({}, {"HOROVOD_CYCLE_TIME": "fast"})[-1].look()
    assert wrong.state == FAULT and "HOROVOD_CYCLE_TIME must be a number" in wrong.fact


def test_fault_in_the_secret_others_can_read_it(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("0badcafe" * 8)
    (tmp_path / "secret").chmod(0o644)
    environ = {"HOROVOD_SECRET_FILE": str(tmp_path / "secret")}
    found = command.probes({}, environ)[-1].look()[-1]
    assert found.state == FAULT and "has mode 0644, so others can read or change it" in found.fact
    (tmp_path / "secret").chmod(0o600)
    found = command.probes({}, environ)[-1].look()[-1]
    assert found.state == WORKS and "0badcafe" not in found.fact


def test_fault_in_the_launcher_half_a_rank() -> None:
    (found,) = choices.launcher({"OMPI_COMM_WORLD_RANK": "1"})
    assert found.state == FAULT and "OMPI_COMM_WORLD_RANK is set, but OMPI_COMM_WORLD_SIZE is not" in found.fact
    whole = {f"OMPI_COMM_WORLD_{name}": "1" for name in ("RANK", "LOCAL_RANK")}
    sizes = {f"OMPI_COMM_WORLD_{name}": "2" for name in ("SIZE", "LOCAL_SIZE")}
    assert choices.launcher({**whole, **sizes}) == [Finding("Open MPI", FACT, "rank 1 of 2, local rank 1")]


def test_fault_in_the_system_no_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.limits, "why_without_proc", lambda: "/proc is not mounted here.")
    assert named(machine.system(), "/proc").state == FAULT


def test_the_processor_tells_what_its_control_group_grants(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    (tmp_path / "sys/fs/cgroup/cpu.max").write_text("100000 100000\n")
    found = machine.processor({}, str(tmp_path))
    assert found[0].name == "1 usable cores" and "its control group grants 1" in found[0].fact


def test_words_that_doctor_does_not_know_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="doctor does not accept '-H'"):
        command.main(["-H", "a:1"])


@pytest.mark.parametrize("program", ["horovod.runner", "horovod"])
def test_both_programs_have_it(program: str) -> None:
    words = [sys.executable, "-m", program, "doctor", "--yaml"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2 and "doctor does not accept '--yaml'. Write: horovodrun doctor [--json]" in done.stderr


@pytest.mark.slow
def test_the_whole_page_as_json() -> None:
    environ = {**os.environ, "HOROVOD_LIBRARY": "/nowhere.so", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    environ["_HOROVOD_SECRET_KEY"] = "0badcafe" * 8
    words = [sys.executable, "-m", "horovod.runner", "doctor", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environ, timeout=100)
    tree = json.loads(done.stdout)
    assert done.returncode == 1 and tree["problems"] >= 1 and "0badcafe" not in done.stdout
    assert [section["title"] for section in tree["sections"]] == [
        "System", "Core", "Frameworks", "Processor", "GPUs", "Shared memory", "Limits", "Network", "ssh", "MPI",
        "Launcher", "Settings",
    ]  # fmt: skip


def test_with_np_it_is_a_program_of_that_name(tmp_path: Path) -> None:
    script(tmp_path, "doctor", "echo own program")
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = [sys.executable, "-m", "horovod.runner", "-np", "1", "doctor"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environ, timeout=60)
    assert "own program" in done.stdout


@pytest.mark.parametrize("line", ["-np 2 doctor --yaml", "-np 2 --verbose doctor --yaml", "-H a:1 doctor --yaml"])
def test_without_such_a_program_flags_may_stand_before_it(line: str) -> None:
    with pytest.raises(InvalidArgumentError, match="doctor does not accept '--yaml'"):
        cli._main(line.split())


@pytest.mark.parametrize("line", ["help", "-np 2 help"])
def test_help_is_a_word_too(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._main(line.split()) == 0
    assert "--elastic-commit-dir" in capsys.readouterr().out
