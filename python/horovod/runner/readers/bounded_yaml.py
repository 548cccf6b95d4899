"""PyYAML's safe loader with bounds: what a few kilobytes of YAML can make it do ends after a moment, not after hours.

Used by `config_file`, which imports it when there is a file to read.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

_MAX_KEYS: Final = 200  # of one mapping, with what it merges: a merge of merges doubles with every line
_MAX_NUMBER: Final = 100  # characters: 1:1:1:... is a number to the base of 60, and takes the square of its length


def load(text: str) -> Any:
    """What the text says, made of plain values.

    Raises:
        yaml.YAMLError: it is not YAML, or goes beyond a bound.
        Exception: what PyYAML's converters let through (impossible dates, unhashable keys, too deep a nesting).
    """
    return yaml.load(text, _Loader)


class _Loader(yaml.SafeLoader):
    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        if len(node.value) > _MAX_KEYS:
            raise yaml.constructor.ConstructorError(
                None, None, f"more than {_MAX_KEYS} keys in one mapping", node.start_mark
            )

    def construct_number(self, node: yaml.ScalarNode) -> Any:
        if len(node.value) > _MAX_NUMBER:
            raise yaml.constructor.ConstructorError(
                None, None, f"a number of {len(node.value)} characters", node.start_mark
            )
        return self.construct_yaml_int(node) if node.tag.endswith(":int") else self.construct_yaml_float(node)


for _tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float"):
    _Loader.add_constructor(_tag, _Loader.construct_number)
