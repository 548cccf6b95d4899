"""Kept for import paths that other people use: `python -m horovod.runner.launch`, and jobs described by an object.

Wrappers fill a `_HorovodArgs` and give it to `_run`; new code calls `horovod.run()`, or starts `horovodrun`.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any, Final, Optional

from horovod._core.absent import absent_names
from horovod._core.settings import SETTINGS, Setting, Settings, suggestion
from horovod.runner import cli, function, launcher_log
from horovod.runner.__main__ import main
from horovod.runner.job import effective_settings, make_job, working_directory
from horovod.runner.options import flags
from horovod.runner.options.job_options import BY_KEYWORD


def run_commandline(argv: Optional[Sequence[str]] = None) -> None:
    """Runs horovodrun with these words, or with those of this process. SystemExit with its code when it fails."""
    code = main(argv)
    if code:
        raise SystemExit(code)


def parse_args(argv: Optional[Sequence[str]] = None) -> _HorovodArgs:
    """The words of a command line as an object; None = those of this process."""
    line = flags.parse(sys.argv[1:] if argv is None else argv)
    args = _HorovodArgs()
    args.command = list(line.command)
    args.values.update(line.values)
    return args


def _attributes() -> dict[str, tuple[Setting, bool]]:
    """Attributes by name: what they set, and whether they set its opposite."""
    found = {}
    for setting in SETTINGS:
        names = {name: flag.const is False for flag in setting.flags for name in flag.names if name.startswith("--")}
        found.update({name[2:].replace("-", "_"): (setting, opposite) for name, opposite in names.items()})
    found.update({keyword: (setting, False) for keyword, setting in BY_KEYWORD.items()})
    return {**found, "nics": found["network_interfaces"], "tcp_flag": found["tcp"]}


_ATTRIBUTES: Final = _attributes()
_OWN: Final = ("command", "run_func", "executable", "values")


class _HorovodArgs:
    """The settings of a job: an attribute for each flag of horovodrun (`args.num_proc = 2`), None until it is set.

    Attributes:
        command: the program and its arguments.
        run_func: a function without arguments, to run instead of a command.
        executable: Python interpreter for `run_func`.
        values: what was set, parsed, by the names of settings.
    """

    command: Optional[Sequence[str]]
    run_func: Optional[Any]
    executable: Optional[str]
    values: dict[str, Any]

    def __init__(self) -> None:
        self.command = self.run_func = self.executable = None
        self.values = {}

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN:
            object.__setattr__(self, name, value)
        elif name not in _ATTRIBUTES:
            meant = suggestion(name, _ATTRIBUTES)
            warnings.warn(f"_HorovodArgs has no {name}, so setting it has no effect.{meant}", stacklevel=2)
        else:
            setting, opposite = _ATTRIBUTES[name]
            if value is None:
                self.values.pop(setting.name, None)
            else:
                parsed = setting.parse(value, f"_HorovodArgs.{name}", coarse=True)
                self.values[setting.name] = (not parsed) if opposite else parsed

    def __getattr__(self, name: str) -> Any:
        if name not in _ATTRIBUTES:
            raise AttributeError(f"_HorovodArgs has no {name}.{suggestion(name, _ATTRIBUTES)}")
        setting, opposite = _ATTRIBUTES[name]
        value = self.values.get(setting.name)
        if value is None:
            return None
        return (not value) if opposite else value // setting.coarse_factor if setting.coarse_unit else value

    def settings(self) -> Settings:
        """What was set, as settings."""
        return Settings([("argument", self.values)])


def _run(args: _HorovodArgs) -> Optional[list[Any]]:
    """Runs the job to its end.

    Returns:
        What `run_func` returned on each rank, by rank; None for a command.

    Raises:
        RuntimeError: a rank failed; the message names it.
    """
    if args.run_func is not None:
        return function.call(args.run_func, (), {}, args.values, args.executable)
    effective = effective_settings(args.values, "argument", os.environ)
    with launcher_log.temporarily(effective.settings, "horovodrun"):
        outcome = cli.run_job(make_job(effective, args.command or (), os.environ, working_directory()))
    if outcome.interrupted:
        raise KeyboardInterrupt
    if outcome.exit_code:
        raise RuntimeError(f"horovodrun: {outcome.message}")
    return None


_START: Final = "horovod.run() or horovodrun, which choose how to start ranks"
__getattr__ = absent_names(
    "horovod.runner.launch",
    {
        "_launch_job": _START,
        "_run_elastic": "_run(args) of this module, or horovod.run(min_num_proc=...)",
        "_run_static": "_run(args) of this module, or horovod.run()",
        "check_build": "horovodrun --check-build",
        "is_gloo_used": _START,
        "run_controller": _START,
    },
)

if __name__ == "__main__":
    run_commandline()
