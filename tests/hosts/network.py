"""Several hosts on one machine: each a set of namespaces with an address, a name, a /dev/shm and an sshd of its own.

They are children of this process and live no longer than it: nothing has a name on the machine but the links' ends in
the namespace of the switch, which go with it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

INIT = Path(__file__).with_name("host_init.py")
WIRE = Path(__file__).with_name("wire.py")
_PATIENCE_S = 20.0
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NEW = ("--net", "--uts", "--mount", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc")
_SSHD = """\
Port 22
HostKey /run/hosts/hostkey
AuthorizedKeysFile /run/hosts/authorized
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
PidFile none
MaxStartups 100
"""
_SSH = """\
Host *
  IdentityFile /run/hosts/key
  UserKnownHostsFile /run/hosts/known_hosts
  GlobalKnownHostsFile /dev/null
"""


def why_absent() -> Optional[str]:
    """Why there can be no hosts here; None if there can."""
    missing = [name for name in ("ip", "unshare", "nsenter", "ssh-keygen", "ssh") if not _which(name)]
    if missing or not os.access("/usr/sbin/sshd", os.X_OK):
        names = ", ".join([*missing, *(() if os.access("/usr/sbin/sshd", os.X_OK) else ("sshd",))])
        return f"{names} is missing; install openssh-server, iproute2 and util-linux (CONTRIBUTING.md)."
    if os.geteuid() != 0:
        return "Not here: hosts are made of namespaces, which takes root."
    tried = subprocess.run(["unshare", *_NEW, "true"], capture_output=True, text=True)
    return f"Not here: namespaces cannot be made: {tried.stderr.strip()}." if tried.returncode else None


def _which(name: str) -> Optional[str]:
    return shutil.which(name, path=_SYSTEM_PATH)


class Host:
    """One host; see the head of the file.

    Attributes:
        name, address, address6: of it.
        pid: of its first process, as this process sees it.
    """

    def __init__(self, number: int, place: Path, name: str) -> None:
        self.number = number
        self.name = name
        self.address = f"10.77.0.{10 + number}"
        self.address6 = f"fd77::{10 + number:x}"
        self.log = place / f"{self.name}.log"
        words = ["unshare", *_NEW, sys.executable, "-I", "-S", str(INIT), self.name, str(place)]
        environ = {"PATH": _SYSTEM_PATH, "LANG": "C"}
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environ, start_new_session=True
            )
        assert self._process.stdout
        if self._process.stdout.readline() != b"up\n":
            raise RuntimeError(f"{self.name} does not come up: {self.log.read_text()}")
        self.pid = _only_child(self._process.pid)

    def entry(self, cwd: str = "/tmp") -> list[str]:
        """The words in front of a command that is to run on this host."""
        return [str(_which("nsenter")), "-t", str(self.pid), "-n", "-u", "-m", "-i", "-p", f"--wdns={cwd}", "--"]

    def start(self, words: Sequence[str], environ: Mapping[str, str], **more: Any) -> Running:
        """Starts a command on this host."""
        enter = self.entry(str(more.pop("cwd", "/tmp")))
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
        return Running(subprocess.Popen([*enter, *words], env=dict(environ), start_new_session=True, **pipes))

    def processes(self) -> dict[int, str]:
        """What runs there, besides its first process and sshd: pid as this process sees it, and command."""
        space = os.readlink(f"/proc/{self.pid}/ns/pid")
        found = {}
        for name in filter(str.isdecimal, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{name}/ns/pid") != space or int(name) == self.pid:
                    continue
                words = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
            except OSError:
                continue  # it has ended
            if words and "/usr/sbin/sshd" not in words:
                found[int(name)] = words
        return found

    def files(self) -> list[str]:
        """What lies in its shared memory."""
        return sorted(os.listdir(f"/proc/{self.pid}/root/dev/shm"))

    def sockets(self) -> list[str]:
        """Its Unix sockets that have names, and its listening TCP sockets, but for sshd's."""
        found = []
        for line in Path(f"/proc/{self.pid}/net/unix").read_text().splitlines()[1:]:
            found += line.split()[7:]
        for table in ("tcp", "tcp6"):
            lines = Path(f"/proc/{self.pid}/net/{table}").read_text().splitlines()[1:]
            found += [f"tcp {each[1]}" for each in map(str.split, lines) if each[3] == "0A" and each[1][-5:] != ":0016"]
        return sorted(found)

    def enter(self, *words: str) -> None:
        """Runs a command in its network, with this process's files."""
        subprocess.run(["nsenter", "-t", str(self.pid), "-n", *words], check=True, capture_output=True)

    def end(self) -> None:
        """Takes it down with all that runs there."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Running:
    """A command that runs on a host."""

    def __init__(self, entered: subprocess.Popen[bytes]) -> None:
        self.entered = entered

    @property
    def pid(self) -> int:
        """Of the command itself, as this process sees it."""
        return _only_child(self.entered.pid)

    def signal(self, number: int) -> None:
        """Sends the command a signal."""
        os.kill(self.pid, number)
        if number == signal.SIGCONT:
            self.entered.send_signal(number)  # nsenter stops when its child does

    def kill(self) -> None:
        """Ends it, unless it has ended."""
        for number in (signal.SIGTERM, signal.SIGKILL):  # launchers of others take their ranks along
            with contextlib.suppress(RuntimeError, ProcessLookupError, FileNotFoundError):
                if self.entered.poll() is None:
                    self.signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.entered.wait(_PATIENCE_S / 2)

    def end(self, patience_s: float = 60.0) -> subprocess.CompletedProcess[bytes]:
        """Waits for its end; kills it when it does not come."""
        try:
            stdout, stderr = self.entered.communicate(timeout=patience_s)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            self.entered.send_signal(signal.SIGCONT)
            stdout, stderr = self.entered.communicate()
            raise AssertionError(f"not over after {patience_s} s: {stdout!r} {stderr!r}") from None
        return subprocess.CompletedProcess(self.entered.args, self.entered.returncode, stdout, stderr)


class Network:
    """Hosts with a switch between them, up when made.

    Args:
        count: of hosts.
        names: of them; host1 and on where none are given.
    """

    def __init__(self, count: int, names: Sequence[str] = ()) -> None:
        self._names = names or [f"host{number}" for number in range(1, count + 1)]
        self.place = Path(tempfile.mkdtemp(prefix="hvdhosts"))
        self.hosts: list[Host] = []
        self._switch: Optional[subprocess.Popen[bytes]] = None
        self._dropped: list[tuple[Host, Host]] = []
        self._wires: dict[int, subprocess.Popen[bytes]] = {}
        try:
            self._write_files(count)
            self._make_switch()
            for number in range(1, count + 1):
                self.hosts.append(Host(number, self.place, self._names[number - 1]))
                self._connect(self.hosts[-1])
            for host in self.hosts:
                _await_port(host)
        except BaseException:
            self.close()
            raise

    def __getitem__(self, number: int) -> Host:
        """By the number in its name."""
        return self.hosts[number - 1]

    def cut(self, host: Host) -> None:
        """Pulls the cable."""
        self._in_switch("ip", "link", "set", f"v{host.number}", "down")

    def join(self, host: Host) -> None:
        """Puts it back."""
        self._in_switch("ip", "link", "set", f"v{host.number}", "up")

    def drop(self, source: Host, target: Host) -> None:
        """From now on nothing that one host sends to another one comes there; nobody is told. The switch knows no host
        with the address of hardware that the target has from now on.
        """
        self._dropped.append((source, target))
        words = ("neigh", "replace", target.address, "lladdr", "02:00:00:00:00:77", "dev", "eth0", "nud", "permanent")
        source.enter("ip", *words)

    def pass_all(self) -> None:
        """What was dropped passes again."""
        for source, target in self._dropped:
            source.enter("ip", "neigh", "del", target.address, "dev", "eth0")
        self._dropped.clear()

    def wire(self, host: Host, delay_s: float = 0.0, loss: float = 0.0, change: Sequence[str] = ()) -> None:
        """Puts a wire between a host and the switch, on which every packet takes so long, each way, is lost or changed.

        Args:
            host: whose.
            delay_s: one way.
            loss: which part of the packets, those that kernels have joined counted as one.
            change: two equally long words; the second takes the place of the first wherever it comes by.
        """
        end, near, far = (f"{letter}{host.number}" for letter in "vnf")
        self._in_switch("ip", "link", "add", near, "type", "veth", "peer", "name", far)
        self._in_switch("ip", "link", "set", near, "up")
        words = [sys.executable, "-I", "-S", str(WIRE), end, near, f"{delay_s:g}", f"{loss:g}", *change]
        assert self._switch is not None
        enter = [str(_which("nsenter")), "-t", str(self._switch.pid), "-n", *words]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        wire = self._wires[host.number] = subprocess.Popen(enter, start_new_session=True, **pipes)
        assert wire.stdout
        wire.stdout.readline()
        self._in_switch("ip", "link", "set", end, "nomaster")
        self._in_switch("ip", "link", "set", far, "master", "br0", "up")

    def unwire(self, host: Host) -> None:
        """Takes the wire away."""
        self._wires.pop(host.number).communicate()
        self._in_switch("ip", "link", "del", f"n{host.number}")
        self._in_switch("ip", "link", "set", f"v{host.number}", "master", "br0")

    def shape(self, *discipline: str) -> None:
        """Gives every link this queueing discipline (words of `tc`), in both directions: a host's own end and the
        switch's."""
        for host in self.hosts:
            host.enter("tc", "qdisc", "replace", "dev", "eth0", "root", *discipline)
            self._in_switch("tc", "qdisc", "replace", "dev", f"v{host.number}", "root", *discipline)

    def unshape(self) -> None:
        """Takes the disciplines away."""
        for host in self.hosts:
            host.enter("tc", "qdisc", "del", "dev", "eth0", "root")
            self._in_switch("tc", "qdisc", "del", "dev", f"v{host.number}", "root")

    def close(self) -> None:
        """Takes everything down."""
        for wire in self._wires.values():
            wire.communicate()
        for host in self.hosts:
            host.end()
        if self._switch is not None:
            assert self._switch.stdin
            self._switch.stdin.close()
            self._switch.wait()
        shutil.rmtree(self.place, ignore_errors=True)

    def _write_files(self, count: int) -> None:
        for name in ("key", "otherkey", "hostkey"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.place / name)], check=True)
        shutil.copy(self.place / "key.pub", self.place / "authorized")
        called = {number: self._names[number - 1] for number in range(1, count + 1)}
        lines = [f"10.77.0.{10 + n} {name}\nfd77::{10 + n:x} {name}-6" for n, name in called.items()]
        (self.place / "hosts").write_text("127.0.0.1 localhost\n" + "\n".join(lines) + "\n")
        public = (self.place / "hostkey.pub").read_text()
        # The ranges of both networks, whatever form of a name is used.
        forms = ((name, f"{name}-6", f"10.77.0.{10 + n}", f"fd77::{10 + n:x}") for n, name in called.items())
        names = ",".join(itertools.chain(*forms))
        (self.place / "known_hosts").write_text(f"{names} {public}")
        (self.place / "ssh_config").write_text(_SSH)
        (self.place / "sshd_config").write_text(_SSHD)

    def _make_switch(self) -> None:
        self._switch = subprocess.Popen(
            # It also removes the files, should this process be killed.
            ["unshare", "--net", "sh", "-c", 'echo up; read line; rm -rf "$1"', "sh", str(self.place)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for whoever made it: the links outlive the jobs that use them
        )
        assert self._switch.stdout
        self._switch.stdout.readline()
        self._in_switch("ip", "link", "add", "br0", "type", "bridge")
        self._in_switch("ip", "link", "set", "br0", "up")

    def _connect(self, host: Host) -> None:
        end = f"v{host.number}"
        self._in_switch("ip", "link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", str(host.pid))
        self._in_switch("ip", "link", "set", end, "master", "br0", "up")
        for words in (
            "link set lo up",
            f"addr add {host.address}/24 dev eth0",
            f"addr add {host.address6}/64 dev eth0 nodad",
            "link set eth0 up",
        ):
            host.enter("ip", *words.split())

    def _in_switch(self, *words: str) -> None:
        assert self._switch is not None
        subprocess.run(["nsenter", "-t", str(self._switch.pid), "-n", *words], check=True, capture_output=True)


def _only_child(pid: int) -> int:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if children:
            return int(children[0])
        time.sleep(0.005)
    raise RuntimeError(f"process {pid} has no child")


def _await_port(host: Host) -> None:
    """Until sshd listens, which the kernel's table of the host's sockets tells."""
    listening = f":{22:04X} "
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        text = Path(f"/proc/{host.pid}/net/tcp").read_text()
        if any(listening in line and " 0A " in line for line in text.splitlines()):
            return
        time.sleep(0.01)
    raise RuntimeError(f"{host.name} has no sshd: {host.log.read_text()}")
