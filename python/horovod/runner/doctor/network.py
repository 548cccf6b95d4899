"""Probes of the ways to other hosts: interfaces, ssh, and the hosts themselves where they are named."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import horovod
from horovod._core.settings import Settings
from horovod._net.interfaces import ipv4_of, ipv6_of
from horovod.runner.doctor.examination import child
from horovod.runner.doctor.findings import ABSENT, FACT, FAULT, WORKS, Finding
from horovod.runner.machines import hosts
from horovod.runner.machines.this_host import is_local
from horovod.runner.remote.ways import host_keys, ssh_command
from horovod.runner.remote.ways.diagnosis import Facts

_UNKNOWN_SPEED: Final = ("", "-1")
HOST_S: Final = 15.0
_SIDE_BY_SIDE: Final = 16
_VERSION_S: Final = 5.0


def interfaces(settings: Settings, root: str = "/") -> list[Finding]:
    """The network interfaces, and whether those that the settings name are among them.

    Args:
        settings: effective.
        root: where /sys is found.
    """
    here = [name for _, name in socket.if_nameindex()]
    found = [_interface(name, Path(root, "sys/class/net", name)) for name in here]
    for name in {*(settings.network_interfaces or ()), *(settings.gloo_iface or ())}:
        if name not in here:
            remedy = f"This host has: {', '.join(here) or 'none'}. Other hosts may have it."
            found.append(Finding(name, FAULT, "set by --network-interfaces or HOROVOD_GLOO_IFACE, but missing", remedy))
    return [*found, *verbs_devices(Path(root, "sys/class/infiniband"))]


def verbs_devices(place: Path) -> list[Finding]:
    """The InfiniBand and RoCE devices, with what becomes of them.

    Args:
        place: /sys/class/infiniband, or what stands for it.
    """
    devices = sorted(place.glob("*"))
    if not devices:
        return [Finding("InfiniBand or RoCE devices", ABSENT, "none")]
    names = ", ".join(device.name for device in devices)
    fact = (
        f"{names}: Horovod's own data plane is TCP, and does not use their verbs; MPI may, where"
        " HOROVOD_CPU_OPERATIONS=mpi has it move the tensors (docs/infiniband.md)"
    )
    return [Finding("InfiniBand or RoCE devices", FACT, fact), *map(_verbs_device, devices)]


def ssh(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    """The client, the user's keys, and every other host that -H or --hostfile names."""
    program = ssh_command.missing(environ)
    others = _other_hosts(settings)
    if program:
        remedy = "Install OpenSSH's client to run jobs on other hosts."
        state = FAULT if others or program != "ssh" else ABSENT
        return [Finding(program, state, "program not found", remedy)]
    shell = ssh_command.shell(
        environ, settings.ssh_port, settings.ssh_identity_file, HOST_S / 2, settings.link_timeout_s
    )
    found = []
    if shell.is_ssh:
        answer = child([shell.words[0], "-V"], _VERSION_S, environ)
        found.append(Finding("client", WORKS, answer.err.strip().partition("\n")[0]))
        agent = environ.get("SSH_AUTH_SOCK", "")
        fact = "none (SSH_AUTH_SOCK is not set)" if not agent else agent if os.path.exists(agent) else f"{agent}: gone"
        found.append(Finding("agent", FACT if agent else ABSENT, fact))
    else:
        found.append(Finding("replaced by", FACT, f"{shell.words[0]} ({ssh_command.RSH_AGENT})"))
    relaxed = host_keys.warnings(environ, (ssh_command.RSH_AGENT, ssh_command.RSH_ARGS))
    found += [Finding("host keys", FACT, text) for text in relaxed]
    if not others:
        return [*found, Finding("other hosts", ABSENT, "none was given; give hosts to have them checked: -H server1:2")]
    with ThreadPoolExecutor(min(_SIDE_BY_SIDE, len(others))) as pool:
        return found + list(pool.map(lambda name: _host(name, shell, settings, environ), others))


def limit_s(settings: Settings) -> float:
    """How long all hosts may take that the settings name."""
    return HOST_S * (2 + len(_other_hosts(settings)) // _SIDE_BY_SIDE)


def _interface(name: str, place: Path) -> Finding:
    state = _word(place / "operstate") or "unknown"
    speed = _word(place / "speed")
    facts = [text for text in (ipv4_of(name), ipv6_of(name)) if text] or ["no address"]
    facts.append("up" if state == "unknown" and name == "lo" else state)
    if speed not in _UNKNOWN_SPEED:
        facts.append(f"{speed} Mbit/s")
    mtu = _word(place / "mtu")
    return Finding(name, FACT, ", ".join([*facts, *([f"MTU {mtu}"] if mtu else [])]))


def _verbs_device(device: Path) -> Finding:
    facts = []
    for port in sorted(device.glob("ports/*")):
        kind = {"InfiniBand": "InfiniBand", "Ethernet": "RoCE"}.get(_word(port / "link_layer"), "unknown link")
        state = _word(port / "state").rpartition(" ")[2].lower() or "unknown state"  # "4: ACTIVE"
        facts.append(", ".join(filter(None, (f"port {port.name}: {kind}", state, _word(port / "rate")))))
    over = sorted(path.name for path in device.glob("device/net/*"))
    facts.append(f"TCP over {', '.join(over)} (--network-interfaces)" if over else "no TCP over it")
    return Finding(device.name, FACT, "; ".join(facts))


def _word(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # of many interfaces the kernel knows no speed
        return ""


def _other_hosts(settings: Settings) -> list[str]:
    if not settings.hosts and not settings.hostfile:
        return []
    named = hosts.parse_hosts(settings.hosts) if settings.hosts else hosts.read_hostfile(settings.hostfile)
    return [name for name in dict.fromkeys(host.hostname for host in named) if not is_local(name)]


def _host(name: str, shell: ssh_command.Shell, settings: Settings, environ: Mapping[str, str]) -> Finding:
    line = ssh_command.version_probe(sys.executable, _python_path(environ))
    answer = child(shell.command(name, line), HOST_S, environ)
    version = answer.out.strip().rpartition("\n")[2]
    if answer.code == 0 and version == horovod.__version__:
        return Finding(name, WORKS, f"answers; {sys.executable} there has Horovod {version}")
    if answer.code == 0:
        remedy = "Install the same version on all hosts."
        return Finding(name, FAULT, f"has Horovod {version}, this machine {horovod.__version__}", remedy)
    facts = Facts(name, sys.executable, settings.ssh_port, answer.code, answer.err, HOST_S)
    return Finding(name, FAULT, facts.why())


def _python_path(environ: Mapping[str, str]) -> Sequence[str]:
    return [os.path.abspath(place) for place in environ.get("PYTHONPATH", "").split(os.pathsep) if place]
