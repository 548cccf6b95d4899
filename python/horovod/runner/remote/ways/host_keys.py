"""Whether options of ssh switch off the check of host keys, which proves that the right host answers. Pure.

The user's configuration of ssh decides, and options may relax it; then the user is warned. Used by the
launchers that reach other hosts by ssh, and by the doctor.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

# What relaxes, by option: `man ssh_config`. Of an option that is given twice ssh takes the first.
_RELAXING: Final = {
    "StrictHostKeyChecking": ("no", "off", "false", "accept-new"),
    "UserKnownHostsFile": ("/dev/null", "none"),
    "NoHostAuthenticationForLocalhost": ("yes", "true"),
    "VerifyHostKeyDNS": ("yes", "true"),
}
_OPTION: Final = re.compile(rf"({'|'.join(_RELAXING)})[\s=\"']+([^\s\"',]+)", re.IGNORECASE)
# By which MPIs are given options of their ssh, or another program in its place.
OF_MPI: Final = (
    "OMPI_MCA_plm_rsh_args",
    "OMPI_MCA_plm_rsh_agent",
    "OMPI_MCA_plm_ssh_args",
    "OMPI_MCA_plm_ssh_agent",
    "PRTE_MCA_plm_ssh_args",
    "PRTE_MCA_plm_ssh_agent",
    "HYDRA_LAUNCHER_EXTRA_ARGS",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS",
)


def relaxed(text: str) -> list[str]:
    """The options among these words, as `-o` of ssh has them, that accept unknown hosts: `Name=value` each.

    Args:
        text: words for a shell; also those of a program around ssh.
    """
    names = {name.lower(): name for name in _RELAXING}
    first: dict[str, str] = {}
    for match in _OPTION.finditer(text):
        first.setdefault(names[match.group(1).lower()], match.group(2))
    return [f"{name}={value}" for name, value in first.items() if value.lower() in _RELAXING[name]]


def warnings(given: Mapping[str, str], variables: Iterable[str]) -> list[str]:
    """A sentence for each of these variables or flags that relaxes the check.

    Args:
        given: their values.
        variables: to look at.
    """
    return [
        f"{name} has {' and '.join(options)}: with that ssh does not check that the right host answers, and may "
        "give this job's secret to another machine. Leave it out, and put the keys of the hosts into "
        "~/.ssh/known_hosts."
        for name in variables
        if (options := relaxed(given.get(name, "")))
    ]
