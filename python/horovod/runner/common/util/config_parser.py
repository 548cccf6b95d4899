"""Kept for import paths that other people use: the names of the settings' variables (`config_parser.HOROVOD_TIMELINE`),
and the environment that arguments amount to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from horovod._core.absent import absent_names
from horovod._core.settings import BY_ENV

if TYPE_CHECKING:
    from horovod.runner.launch import _HorovodArgs


def set_env_from_args(env: dict[str, str], args: _HorovodArgs) -> dict[str, str]:
    """Puts the variables into `env` that tell ranks what `args` say, and returns it."""
    env.update(args.settings().to_environ())
    return env


_refuse = absent_names(
    __name__,
    {
        "set_args_from_config": "horovodrun --config-file, which reads the same YAML",
        "validate_config_args": "parse_args() of horovod.runner.launch, which checks each value",
    },
)


def __getattr__(name: str) -> str:
    return name if name in BY_ENV else _refuse(name)
