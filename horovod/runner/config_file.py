"""The YAML file of --config-file, turned into values of settings.

Used by `job`. Keys come from the table of settings; a key that is not there is an error that says which one was
probably meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from horovod._core.errors import InvalidArgumentError
from horovod._core.settings import SETTINGS, Setting, suggestion

_MAX_BYTES: Final = 1 << 20
_BY_PATH: Final[dict[str, Setting]] = {setting.yaml: setting for setting in SETTINGS if setting.yaml}
_SECTIONS: Final = frozenset(path.split(".")[0] for path in _BY_PATH if "." in path)


def read(path: str) -> dict[str, Any]:
    """Reads and parses the file.

    Returns:
        Values by the names of their settings.

    Raises:
        InvalidArgumentError: the file cannot be read, is not YAML, or has a key or a value that no setting takes.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise InvalidArgumentError(f"--config-file {path} cannot be read: {error.strerror}.") from error
    if len(data) > _MAX_BYTES:
        raise InvalidArgumentError(f"--config-file {path} is larger than {_MAX_BYTES} bytes; is it the right file?")
    return parse(data, path)


def parse(data: bytes, path: str) -> dict[str, Any]:
    """Parses the contents of the file; see `read`."""
    import yaml

    try:
        tree = yaml.safe_load(data.decode("utf-8"))
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
    values: dict[str, Any] = {}
    for key, value in tree.items():
        if key not in _SECTIONS:
            _take(values, str(key)[:100], value, path)
        elif isinstance(value, Mapping):
            for inner, leaf in value.items():
                _take(values, f"{key}.{str(inner)[:100]}", leaf, path)
        elif value is not None:
            raise InvalidArgumentError(f"{key} in {path} must hold keys and values, such as '{_example(key)}'.")
    return values


def _take(values: dict[str, Any], key: str, value: object, path: str) -> None:
    setting = _BY_PATH.get(key)
    if setting is None:
        raise InvalidArgumentError(f"{path}: there is no key {key!r}.{suggestion(key, (*_BY_PATH, *_SECTIONS))}")
    if value is None:
        return
    parsed = setting.parse(value, f"{key} in {path}", coarse=True)
    values[setting.name] = (not parsed) if setting.yaml_inverted else parsed


def _example(section: str) -> str:
    return next(path for path in _BY_PATH if path.startswith(section + "."))
