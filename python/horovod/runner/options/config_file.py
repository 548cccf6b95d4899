"""The YAML file of --config-file, turned into values of settings.

Used by `job`. Keys come from the table of settings; other keys have no effect, and the caller learns of them, with
the key that was probably meant: files that were written for other versions have keys of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from horovod._core.errors import InvalidArgumentError
from horovod._core.settings import SETTINGS, Setting, suggestion
from horovod.runner.readers import named_files

_MAX_BYTES: Final = 1 << 16  # that is 65 times all keys with their values
_BY_PATH: Final[dict[str, Setting]] = {setting.yaml: setting for setting in SETTINGS if setting.yaml}
_SECTIONS: Final = frozenset(path.split(".")[0] for path in _BY_PATH if "." in path)


class Contents(NamedTuple):
    """What a file says.

    Attributes:
        values: by the names of their settings.
        remarks: one sentence per key that has no effect.
    """

    values: dict[str, Any]
    remarks: list[str]


def read(path: str) -> Contents:
    """Reads and parses the file.

    Raises:
        InvalidArgumentError: the file cannot be read, is not YAML, or has a value that its setting cannot take.
    """
    try:
        data = named_files.read(path, _MAX_BYTES)
    except OSError as error:
        raise InvalidArgumentError(f"--config-file {path} cannot be read: {error.strerror}.") from error
    if len(data) > _MAX_BYTES:
        raise InvalidArgumentError(f"--config-file {path} is larger than {_MAX_BYTES} bytes; is it the right file?")
    return parse(data, path)


def parse(data: bytes, path: str) -> Contents:
    """Parses the contents of the file; see `read`."""
    tree = _tree(data, path)
    found = Contents({}, [])
    for key, value in tree.items():
        if key not in _SECTIONS:
            _take(found, str(key)[:100], value, path)
        elif isinstance(value, Mapping):
            for inner, leaf in value.items():
                _take(found, f"{key}.{str(inner)[:100]}", leaf, path)
        elif value is not None:
            raise InvalidArgumentError(f"{key} in {path} must hold keys and values, such as '{_example(key)}'.")
    return found


def _tree(data: bytes, path: str) -> Mapping[Any, Any]:
    import yaml

    from horovod.runner.readers import bounded_yaml

    try:
        tree = bounded_yaml.load(data.decode("utf-8"))
    except (
        yaml.YAMLError,
        ValueError,
        TypeError,
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
    ) as error:
        # PyYAML lets errors of its converters through: impossible dates, huge integers, unhashable keys.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InvalidArgumentError(f"--config-file {path} is not valid YAML: {reason[:300]}.") from error
    if tree is None:
        return {}
    if not isinstance(tree, Mapping):
        raise InvalidArgumentError(f"--config-file {path} must hold keys and values, such as 'params:'.")
    return tree


def _take(found: Contents, key: str, value: object, path: str) -> None:
    setting = _BY_PATH.get(key)
    if setting is None:
        meant = suggestion(key, (*_BY_PATH, *_SECTIONS))
        found.remarks.append(f"{path}: {key!r} is not a key that Horovod knows, so it has no effect.{meant}")
    elif value is not None:
        parsed = setting.parse(value, f"{key} in {path}", coarse=True)
        found.values[setting.name] = (not parsed) if setting.yaml_inverted else parsed


def _example(section: str) -> str:
    return next(path for path in _BY_PATH if path.startswith(section + "."))
