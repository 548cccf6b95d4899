"""One setting: its names, type, bounds and help, and how a text or a YAML value becomes its value.

Used by the `table`, by `values` and by the launcher. It reads nothing from the process and knows no
row.
"""

from __future__ import annotations

import math
import re
import reprlib
from typing import Any, Final, NamedTuple, Optional, Union

from horovod._core.errors import InvalidArgumentError
from horovod._core.integers import as_integer

_TRUE: Final = frozenset({"true", "yes", "on"})
_FALSE: Final = frozenset({"false", "no", "off"})
_short: Final = reprlib.Repr()
_short.maxstring = _short.maxother = 200
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_RANKS: Final = re.compile(r"\s*([0-9]{1,7})\s*(?:-\s*([0-9]{1,7})\s*)?")
_MOST_RANKS: Final = 1 << 16


class Flag(NamedTuple):
    """A command-line spelling of a setting.

    Args:
        names: the option strings, short form first.
        const: for a switch, the value it gives; None for an option that takes a value.
        hidden: not shown by --help.
        deprecated: what to use instead; empty when the flag is current.
        metavar: the word for the value in --help.
        group: flags of the same non-empty name exclude one another.
    """

    names: tuple[str, ...]
    const: Optional[bool] = None
    hidden: bool = False
    deprecated: str = ""
    metavar: tuple[str, ...] = ()
    group: str = ""


class Setting(NamedTuple):
    """One row of the table.

    Args:
        name: the Python name, with its unit. Of a setting with `engine_field` it is also the field of `hvd_config`.
        kind: bool, tristate (None = decide), int, int_or_auto, float, text, choice, cores (comma list of
            integers), ranks (comma list of integers and ranges), names (comma list), or int_pair.
        default: the value if none is given; None = not given.
        help: one or two sentences for --help and docs/settings.md.
        section: heading in --help and docs/settings.md.
        scope: engine (the ranks read it, in Python or in C++), launcher (only the launcher does), or both.
        env: environment variable, or empty.
        unit: plural noun for messages, e.g. "milliseconds".
        minimum, maximum: inclusive bounds of a number.
        choices: permitted words of a choice, in the order of the engine's numbers.
        aliases: (word, choice) pairs: other spellings of a choice.
        flags: command-line spellings.
        yaml: dotted path in the --config-file, or empty.
        yaml_inverted: the YAML boolean says the opposite.
        coarse_unit: unit of flags and YAML where it differs from the environment's, e.g. "megabytes".
        coarse_factor: how many of `unit` one `coarse_unit` is.
        engine_field: is passed to the core in hvd_config under `name`.
        keyword: of `horovod.run` and of other functions that start jobs, or empty.
        old_keywords: deprecated names of it.
        inert: empty if it has an effect; else why it has none in this version, the fact and the remedy: warn once.
        unmet_choices: (choice, fact and remedy) pairs: what of `choices` has no effect in this version; warn once.
        requires: name of the boolean setting without which this one has no meaning; of several, with | between them,
            one is enough.
    """

    name: str
    kind: str
    default: Any
    help: str
    section: str
    scope: str = "engine"
    env: str = ""
    unit: str = ""
    minimum: Optional[float] = None
    maximum: Optional[float] = None
    choices: tuple[str, ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()
    flags: tuple[Flag, ...] = ()
    yaml: str = ""
    yaml_inverted: bool = False
    coarse_unit: str = ""
    coarse_factor: int = 1
    engine_field: bool = False
    keyword: str = ""
    old_keywords: tuple[str, ...] = ()
    inert: str = ""
    unmet_choices: tuple[tuple[str, str], ...] = ()
    requires: str = ""

    def parse(self, value: object, label: str, coarse: bool = False) -> Any:
        """Turns a text (environment, command line) or a YAML or Python value into the setting's value.

        Args:
            value: what was given.
            label: how the user calls it, e.g. "HOROVOD_CYCLE_TIME" or "--cycle-time-ms".
            coarse: the value is in `coarse_unit`.

        Raises:
            InvalidArgumentError: the value is not of the setting's kind or outside its bounds.
        """
        if isinstance(value, str):
            value = value.strip()
        parsed = getattr(self, "_parse_" + self.kind)(value)
        if parsed is None or not self._within_bounds(parsed):
            raise InvalidArgumentError(f"{label} must be {self.expected(coarse)}. Received: {_short.repr(value)}.")
        if coarse and self.coarse_unit:
            return parsed * self.coarse_factor
        return parsed

    def expected(self, coarse: bool = False) -> str:
        """The words after "must be": what values are good."""
        if self.kind in ("bool", "tristate"):
            return "true or false (an integer > 0 is true)"
        if self.kind == "choice":
            return "one of " + ", ".join(self.choices)
        if self.kind == "cores":
            return "a comma-separated list of core numbers >= 0"
        if self.kind == "ranks":
            return "a comma-separated list of ranks and of ranges, such as 0,3-5"
        if self.kind == "names":
            return "a comma-separated list of names"
        if self.kind == "int_pair":
            return f"two integers (numbers of {self.unit}), the first >= 1 and not above the second"
        if self.kind == "text":
            return "a non-empty text"
        if self.kind == "int_or_auto":
            return f"an integer number of {self.unit} >= {self.minimum:g}, or auto"
        unit = self.coarse_unit if coarse and self.coarse_unit else self.unit
        words = "an integer" if self.kind == "int" else "a number"
        if unit:
            words = f"{words} of {unit}" if self.kind == "float" else f"{words} number of {unit}"
        if self.minimum is not None and self.maximum is not None:
            return f"{words} from {self.minimum:.12g} to {self.maximum:.12g}"
        if self.minimum is not None:
            return f"{words} >= {self.minimum:g}"
        return words

    def text(self, value: Any) -> str:
        """The value as an environment variable holds it; the inverse of `parse`."""
        if isinstance(value, bool):
            return "1" if value else "0"
        if isinstance(value, tuple):
            return ",".join(str(item) for item in value)
        if isinstance(value, float) and value.is_integer():
            return str(int(value))
        return str(value)

    def _within_bounds(self, value: Any) -> bool:
        if value == "auto":
            return True
        numbers = value if self.kind == "cores" else (value,)
        for number in numbers:
            if self.minimum is not None and number < self.minimum:
                return False
            if self.maximum is not None and number > self.maximum:
                return False
        return True

    def _parse_bool(self, value: object) -> Optional[bool]:
        if isinstance(value, bool):
            return value
        if getattr(value, "dtype", None) == "bool" and getattr(value, "shape", None) == ():  # NumPy's
            return bool(value)
        number = as_integer(value)
        if number is not None:
            return number > 0
        if isinstance(value, str):
            word = value.lower()
            if word in _TRUE or word in _FALSE:
                return word in _TRUE
            if _INTEGER.fullmatch(word):
                return int(word) > 0
        return None

    def _parse_tristate(self, value: object) -> Optional[bool]:
        return self._parse_bool(value)

    def _parse_int(self, value: object) -> Optional[int]:
        number = as_integer(value)
        if number is not None:
            return number
        if isinstance(value, float) and value.is_integer():
            return int(value)
        # int() of a huge text is refused by Python itself (or slow); nothing here needs more than 19 digits.
        if isinstance(value, str) and len(value) <= 20 and _INTEGER.fullmatch(value):
            return int(value)
        return None

    def _parse_int_or_auto(self, value: object) -> Union[int, str, None]:
        return "auto" if isinstance(value, str) and value.lower() == "auto" else self._parse_int(value)

    def _parse_float(self, value: object) -> Optional[float]:
        if not isinstance(value, (float, str)):
            value = as_integer(value)
        if value is None:
            return None
        try:
            number = float(value)
        except (ValueError, OverflowError):
            return None
        return number if math.isfinite(number) else None

    def _parse_text(self, value: object) -> Optional[str]:
        # NUL cannot travel in an environment variable, an argument or a path.
        return value if isinstance(value, str) and value and "\0" not in value else None

    def _parse_choice(self, value: object) -> Optional[str]:
        word = value.lower() if isinstance(value, str) else str(value)
        word = dict(self.aliases).get(word, word)
        return word if word in self.choices else None

    def _parse_cores(self, value: object) -> Optional[tuple[int, ...]]:
        if isinstance(value, (list, tuple)):
            pieces = list(value)
        else:
            pieces = value.split(",") if isinstance(value, str) else [value]
        cores = [self._parse_int(piece.strip() if isinstance(piece, str) else piece) for piece in pieces]
        found = tuple(core for core in cores if core is not None)
        return found if found and len(found) == len(pieces) else None

    def _parse_ranks(self, value: object) -> Optional[tuple[int, ...]]:
        pieces = value if isinstance(value, (list, tuple)) else str(value).split(",")
        found: set[int] = set()
        for piece in pieces:
            match = _RANKS.fullmatch(str(piece))
            if match is None:
                return None
            low = int(match.group(1))
            high = int(match.group(2) or low)
            if high < low or high - low >= _MOST_RANKS:
                return None
            found.update(range(low, high + 1))
        return tuple(sorted(found)) or None

    def _parse_names(self, value: object) -> Optional[tuple[str, ...]]:
        if isinstance(value, (list, tuple, set, frozenset)):
            pieces = [piece for piece in value if isinstance(piece, str)]
            if len(pieces) != len(value):
                return None
        elif isinstance(value, str):
            pieces = value.split(",")
        else:
            return None
        names = tuple(dict.fromkeys(piece.strip() for piece in pieces))
        return names if names and all(names) and not any("\0" in name for name in names) else None

    def _parse_int_pair(self, value: object) -> Optional[tuple[int, int]]:
        if not isinstance(value, (list, tuple)) or len(value) != 2:
            return None
        low, high = self._parse_int(value[0]), self._parse_int(value[1])
        return (low, high) if low is not None and high is not None and 1 <= low <= high else None
