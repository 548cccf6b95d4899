"""The first process of a host of `network`: makes what a host has of its own, runs sshd, and lives as long as stdin.

`python host_init.py NAME PLACE`, as pid 1 of new namespaces; PLACE has its keys and configurations. When its stdin
ends (whoever made the host is gone, even by SIGKILL), it ends, and the kernel takes down everything with it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

_MS_BIND = 4096


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    words = [word.encode() for word in (source, target, kind)]
    if libc.mount(*words, flags, options.encode()):
        raise OSError(ctypes.get_errno(), f"mount {target}: {os.strerror(ctypes.get_errno())}")


def main() -> None:
    name, place = sys.argv[1:3]
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    subprocess.run(["hostname", name], check=True)
    mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=512m,mode=1777")
    mount("tmpfs", "/run", "tmpfs", 0, "size=64m,mode=755")
    Path("/run/sshd").mkdir(mode=0o755)
    # Keys and configurations: there, whatever is mounted over the folder for temporary files.
    Path("/run/hosts").mkdir()
    mount(place, "/run/hosts", flags=_MS_BIND)
    mount("/run/hosts/hosts", "/etc/hosts", flags=_MS_BIND)
    mount("/run/hosts/ssh_config", "/etc/ssh/ssh_config", flags=_MS_BIND)
    sshd = subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", "/run/hosts/sshd_config"], stdin=subprocess.DEVNULL)
    print("up", flush=True)
    signal.signal(signal.SIGCHLD, lambda *_: reap(sshd.pid))
    while sys.stdin.buffer.read(1):
        pass
    os._exit(0)


def reap(sshd: int) -> None:
    """Pid 1 is the parent of all orphans."""
    try:
        while True:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
    except ChildProcessError:
        return


main()
