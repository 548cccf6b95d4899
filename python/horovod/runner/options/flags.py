"""The command line of horovodrun, built from the table of settings.

Used by `cli`. It turns words into values of settings and the user's command; it checks each value, not their
combination.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, NoReturn, Optional, Union

from horovod._core.errors import InvalidArgumentError
from horovod._core.settings import BY_NAME, SETTINGS, Flag, Setting, suggestion
from horovod.runner.options import spelling, usage


class CommandLine(NamedTuple):
    """What the user has typed.

    Attributes:
        values: of settings, by name; only those given.
        command: the program and its arguments; empty when there is none. Of -m it is this Python with the module.
        version, check_build, status: these were asked for.
        deprecations: one sentence per deprecated flag that was used.
    """

    values: dict[str, Any]
    command: tuple[str, ...]
    version: bool
    check_build: bool
    status: bool
    deprecations: tuple[str, ...]


def parse(words: Sequence[str]) -> CommandLine:
    """Parses the words after "horovodrun". `-h` and `--help` print the short help or the whole, and exit.

    Raises:
        InvalidArgumentError: an unknown flag, a bad value, or flags that exclude one another.
    """
    options, command = split(words)
    namespace = argparse.Namespace(values={}, deprecations=[])
    parser(options).parse_args(options, namespace)
    return CommandLine(
        namespace.values,
        tuple(command),
        namespace.version,
        namespace.check_build,
        namespace.status,
        tuple(namespace.deprecations),
    )


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Cuts before the first word that is neither a flag nor its value; a `--` in front of the command is dropped.

    Flags come back spelled out. What follows -m is a module and its arguments, as Python has it.

    Raises:
        InvalidArgumentError: -m without a module.
    """
    options: list[str] = []
    left = list(words)
    while left and left[0].startswith("-"):
        if left[0] == "--":
            return options, left[1:]
        found = spelling.spelled_out(left.pop(0), _WIDTHS)
        if found[0].partition("=")[0] in _MODULE_FLAGS:
            return options, _module_command(found, left)
        values = _WIDTHS.get(found[0], 0) if len(found) == 1 else 0
        options += found + left[:values]
        del left[:values]
    return options, left


def _module_command(flag: Sequence[str], after: Sequence[str]) -> list[str]:
    """This Python with the module that a flag names, attached to it or as the next word."""
    name, equals, value = flag[0].partition("=")
    words = [*([value] if equals else flag[1:]), *after]
    if not words or not words[0]:
        raise InvalidArgumentError(
            f"{name} must be followed by a module, which this Python runs: horovodrun -np 2 -m package.module"
        )
    return [sys.executable, "-m", *words]


def processes_in(words: Sequence[str]) -> Optional[int]:
    """Where, in a command, the number of processes stands that was meant for horovodrun; None when it does not."""
    for index, word in enumerate(words[:-1]):
        if word in _PROCESS_FLAGS and words[index + 1].isdecimal():
            return index
    return None


def parser(words: Optional[Sequence[str]] = None) -> argparse.ArgumentParser:
    """The parser of everything before the command.

    Args:
        words: what it will parse: it need not know other flags, and without them it is made in a tenth of the time;
            None: any words.
    """
    wanted = _flags_among(words)
    made = _Parser(
        prog="horovodrun",
        usage=usage.USAGE,
        description=usage.DESCRIPTION,
        epilog=usage.EPILOG,
        allow_abbrev=False,
        add_help=False,
        argument_default=argparse.SUPPRESS,
    )
    sections: dict[str, Any] = {}
    exclusive: dict[str, Any] = {}
    # Not by the parser itself, which would import what measures a terminal.
    for name in usage.SECTIONS if wanted is None else (usage.FIRST,):
        sections[name] = made.add_argument_group(name)
    general = sections[usage.FIRST]
    for setting in sorted(SETTINGS, key=lambda setting: _place_in_help(setting.name)):
        for flag in setting.flags:
            if wanted is not None and wanted.isdisjoint(flag.names):
                continue
            section = usage.FIRST if setting.name in usage.FIRST_SETTINGS else setting.section
            place = sections.get(section, general)
            if flag.group:
                if flag.group not in exclusive:
                    exclusive[flag.group] = place.add_mutually_exclusive_group()
                place = exclusive[flag.group]
            _add(place, setting, flag)
    general.add_argument("-h", action=_ShortHelp, nargs=0, help="The most important options, on one screen.")
    general.add_argument("--help", action="help", help="All options.")
    general.add_argument("-v", "--version", action="store_true", default=False, help="Print the version.")
    general.add_argument(
        "-cb", "--check-build", action="store_true", default=False, help="Show what can be used on this machine."
    )
    sections.get("Monitoring", general).add_argument(
        "--status", action="store_true", default=False, help="Show the jobs of this user on this machine, and leave."
    )
    general.add_argument(
        *_MODULE_FLAGS, metavar="MODULE", help="Run this module with this Python; what follows is passed to it."
    )
    return made


def _place_in_help(name: str) -> int:
    first = usage.FIRST_SETTINGS
    return first.index(name) if name in first else len(first)


def _flags_among(words: Optional[Sequence[str]]) -> Optional[set[str]]:
    """The flags that occur in these words; None when help is asked for, or a word has to be looked at by the parser."""
    found = None if words is None else {word.partition("=")[0] for word in words if word.startswith("-")}
    return found if found is not None and found <= _WIDTHS.keys() - {"-h", "--help"} else None


# As argparse says it, with all spellings of a flag.
_EXCLUSIVE: Final = re.compile(r"argument (\S+): not allowed with argument (\S+)")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        exclusive = _EXCLUSIVE.fullmatch(message)
        if exclusive is not None:
            names = " and ".join(name.rpartition("/")[2] for name in reversed(exclusive.groups()))
            raise InvalidArgumentError(f"{names} exclude each other; give one of them.")
        message = message.replace("expected one argument", "a value must follow it")
        raise InvalidArgumentError(f"{message[:1].upper()}{message[1:].rstrip('.')}. See horovodrun --help.")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            word = unknown[0].partition("=")[0]
            known = self._option_string_actions
            meant = spelling.meant_by(word, _WIDTHS) or suggestion(word, known)
            meant = meant or spelling.beginning_meant_by(word, known)
            hint = meant or " If it is meant for your program, write it after the program's name."
            raise InvalidArgumentError(f"There is no flag {word}.{hint}")
        return found


class _ShortHelp(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        sys.stdout.write(usage.SHORT)
        parser.exit()


class _Take(argparse.Action):
    """Parses a value by its setting and keeps it under the setting's name."""

    def __init__(self, *args: Any, setting: Setting, flag: Flag, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._setting = setting
        self._flag = flag

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Union[str, Sequence[Any], None],
        option_string: Optional[str] = None,
    ) -> None:
        setting, flag, word = self._setting, self._flag, option_string or self._flag.names[-1]
        if flag.deprecated:
            namespace.deprecations.append(f"{word} is deprecated; use {flag.deprecated}.")
        value = flag.const if flag.const is not None else setting.parse(values, word, coarse=True)
        if setting.kind == "names" and setting.name in namespace.values:
            value = tuple(dict.fromkeys(namespace.values[setting.name] + value))
        if word == "--network-interface" and "," in str(values):
            namespace.deprecations.append(f"A list after {word} is deprecated; use --network-interfaces.")
        namespace.values[setting.name] = value


def _width(setting: Setting, flag: Flag) -> int:
    if flag.const is not None:
        return 0
    return 2 if setting.kind == "int_pair" else 1


_MODULE_FLAGS: Final = ("-m", "--module")
# How many values each flag takes.
_WIDTHS: Final[dict[str, int]] = {
    **dict.fromkeys(("-h", "--help", "-v", "--version", "-cb", "--check-build", "--status"), 0),
    **dict.fromkeys(_MODULE_FLAGS, 1),
    **{name: _width(setting, flag) for setting in SETTINGS for flag in setting.flags for name in flag.names},
}
_PROCESS_FLAGS: Final = BY_NAME["num_proc"].flags[0].names


def _add(place: Any, setting: Setting, flag: Flag) -> None:
    width = _width(setting, flag)
    nargs = {0: 0, 1: None, 2: 2}[width]
    metavar = (flag.metavar if width == 2 else flag.metavar[0]) if flag.metavar else None
    text = argparse.SUPPRESS if flag.hidden else _help(setting, flag)
    place.add_argument(
        *flag.names,
        action=_Take,
        dest=setting.name,
        nargs=nargs,
        metavar=metavar,
        help=text,
        setting=setting,
        flag=flag,
    )


def _help(setting: Setting, flag: Flag) -> str:
    if flag.const is False:
        return f"Opposite of {setting.flags[0].names[-1]}."
    text = setting.help
    if flag.const is True and setting.default is True:
        text += " The default."
    if setting.kind == "choice":
        text += f" One of {', '.join(word.upper() for word in setting.choices)}."
    if setting.default is not None and setting.kind not in ("bool", "tristate"):
        default = setting.default / setting.coarse_factor if setting.coarse_unit else setting.default
        text += f" Default: {setting.text(default if setting.kind in ('choice', 'text') else float(default))}."
    if setting.env:
        text += f" Environment: {setting.env}."
    if setting.inert:
        text += " No effect in this version."
    return text.replace("%", "%%")
