"""Which environment variables belong to a host, a login or a screen, and stay there. Pure.

Used by `launchers.agents`, `launchers.mpirun`, `plan` and `workplace`: a rank on another host gets the launcher's
variables, but keeps that host's own of these.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

_PREFIXES: Final = ("SSH_", "XDG_SESSION_", "XDG_SEAT", "XDG_VTNR", "DBUS_", "TMUX", "SYSTEMD_", "GPG_", "VSCODE_")
_NAMES: Final = frozenset(
    (
        *("HOSTNAME", "HOST", "HOME", "USER", "LOGNAME", "MAIL", "SHELL"),
        *("XDG_RUNTIME_DIR", "DISPLAY", "XAUTHORITY", "WAYLAND_DISPLAY", "WINDOWID", "STY", "INVOCATION_ID"),
        *("JOURNAL_STREAM", "MAINPID", "LISTEN_PID", "LISTEN_FDS", "NOTIFY_SOCKET", "CREDENTIALS_DIRECTORY"),
        "_HOROVOD_SECRET_KEY",  # of an agent that was given it, because others can read what the launcher sends
        # Which devices there are, and which of them are free, differs from host to host.
        *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    )
)


def belongs_to_a_host(name: str) -> bool:
    """The variable says something about one host, login or screen."""
    return name in _NAMES or name.startswith(_PREFIXES)


def travelling(environ: Mapping[str, str]) -> dict[str, str]:
    """What goes along to other hosts."""
    return {name: value for name, value in environ.items() if not belongs_to_a_host(name)}


def added(own: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """What a rank gets that lives as a process of its host does: that one's variables and what was given; it imports
    from both paths."""
    paths = [path for path in (given.get("PYTHONPATH"), own.get("PYTHONPATH")) if path]
    return {**own, **given, **({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})}


def joined(own: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """What a rank gets: what was given, and this host's own of what belongs to a host."""
    return {**{name: value for name, value in own.items() if belongs_to_a_host(name)}, **given}
