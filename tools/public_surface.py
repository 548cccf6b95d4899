"""Lists what users' programs and commands can name: public names with their parameters, settings, variables, flags.

`public_surface.py [--tree CHECKOUT] [--compare FILE]`. Prints an entry a line, sorted, of this checkout or another one.
With `--compare` it prints what a list made before has and the checkout has no more, and exits with code 1 if there is
something. The frameworks must be installed. tests/unit/suite/public_surface.txt is the list that a test compares with.
"""

from __future__ import annotations

import argparse
import enum
import importlib
import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
# The modules that programs import, those of upstream's scripts among them: packages, and what is below each.
PACKAGES = {
    "horovod": "common common.basics common.elastic common.exceptions common.process_sets common.util data "
    "data.data_loader_base _keras _keras.callbacks _keras.elastic",
    "horovod.numpy": "elastic",
    "horovod.jax": "elastic",
    "horovod.torch": "compression distributed elastic elastic.sampler elastic.state functions mpi_ops optimizer "
    "sync_batch_norm",
    "horovod.tensorflow": "compression elastic functions gradient_aggregation gradient_aggregation_eager mpi_ops "
    "sync_batch_norm util data.compute_service data.compute_worker keras keras.callbacks keras.elastic",
    "horovod.keras": "callbacks elastic",
    "horovod.spark": "conf task tensorflow.compute_worker",
    "horovod.ray": "ray_logger runner",
    "horovod.runner": "launch run_task common.util.codec common.util.config_parser common.util.env "
    "common.util.host_hash common.util.hosts common.util.safe_shell_exec common.util.secret common.util.timeout "
    "common.util.tiny_shell_exec util.lsf util.network util.streams util.threads",
}
_AGAIN = "again "
_SIMPLE = (int, float, str, bool, type(None), tuple)


def shown(parameter: inspect.Parameter) -> str:
    """A parameter without its annotation; `...` for a default that has no short text."""
    text = str(parameter.replace(annotation=inspect.Parameter.empty, default=inspect.Parameter.empty))
    if parameter.default is inspect.Parameter.empty:
        return text
    if isinstance(parameter.default, enum.Enum):
        return f"{text}={parameter.default.name}"
    return f"{text}={parameter.default!r}" if isinstance(parameter.default, _SIMPLE) else f"{text}=..."


def parameters(value: object) -> str:
    """What a function or a class can be called with, in brackets; "" for anything else."""
    if not callable(value):
        return ""
    try:
        return f"({', '.join(shown(each) for each in inspect.signature(value).parameters.values())})"
    except (TypeError, ValueError):
        return "()"


def names_of(module: ModuleType) -> list[str]:
    """The public names of a module: `__all__`, or what it defines, or all of one that no file stands for."""
    chosen = getattr(module, "__all__", None)
    if chosen is not None:
        return list(chosen)
    own = [name for name in dir(module) if not name.startswith("_")]
    if getattr(module, "__file__", None) is None:
        return own
    return [name for name in own if getattr(getattr(module, name), "__module__", "") == module.__name__]


def names() -> Iterator[str]:
    """An entry for each name of the modules, and for each method that a class defines. What a module only has again
    from another one stands together in an entry `again MODULE(NAME, ...)`."""
    seen: set[int] = set()
    for module_name in (".".join(filter(None, (p, m))) for p in PACKAGES for m in ["", *PACKAGES[p].split()]):
        try:
            module = importlib.import_module(module_name)
        except ImportError as error:
            print(f"{module_name} cannot be imported: {error}", file=sys.stderr)
            continue
        own = {name: getattr(module, name) for name in names_of(module)}
        again = sorted(name for name, value in own.items() if id(value) in seen)
        if again:
            yield f"{_AGAIN}{module_name}({', '.join(again)})"
        for name, value in own.items():
            if inspect.ismodule(value) or name in again:
                continue
            yield f"{module_name}.{name}{parameters(value)}"
            for method, made in vars(value).items() if inspect.isclass(value) else ():
                if not method.startswith("_"):
                    function = made.__func__ if isinstance(made, (classmethod, staticmethod)) else made
                    yield f"{module_name}.{name}.{method}{parameters(function)}"
        seen |= {id(value) for value in own.values() if callable(value) or isinstance(value, enum.Enum)}


def settings() -> Iterator[str]:
    """An entry for each setting, with the ways to give it as parameters."""
    from horovod._core.settings import SETTINGS

    for setting in SETTINGS:
        ways = {"variable": setting.env, "yaml": setting.yaml, "keyword": setting.keyword}
        given = [f"{way}={name}" for way, name in ways.items() if name]
        given += [f"flag={name}" for flag in setting.flags for name in flag.names]
        yield f"setting {setting.name}({', '.join(given)})"


def parts(entry: str) -> tuple[str, list[str]]:
    """The name of an entry, and its parameters."""
    name, _, rest = entry.partition("(")
    return name, [word for word in rest.rpartition(")")[0].split(", ") if word]


def gone(before: Iterable[str], now: Iterable[str]) -> list[str]:
    """What was there and is there no more: names, and parameters of names that still are."""
    here = dict(map(parts, now))
    again = [(name.removeprefix(_AGAIN), words) for name, words in here.items() if name.startswith(_AGAIN)]
    known = {*here, *(f"{module}.{word}" for module, words in again for word in words)}
    missing = []
    for entry in before:
        name, words = parts(entry)
        if name.startswith(_AGAIN):
            named = [f"{name.removeprefix(_AGAIN)}.{word}" for word in words]
            missing += [each for each in named if each not in known]
        elif name in here:
            missing += [f"{name}: parameter {word}" for word in words if word not in here[name]]
        elif name not in known:
            missing.append(entry)
    return missing


def main() -> int:
    """Exit code for the shell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tree", type=Path, default=ROOT, help="another checkout of this project")
    parser.add_argument("--compare", type=Path, help="a list to compare with")
    asked = parser.parse_args()
    sys.path.insert(0, str(asked.tree.resolve() / "python"))
    entries = sorted({*names(), *settings()})
    if asked.compare is None:
        print("\n".join(entries))
        return 0
    missing = gone(asked.compare.read_text().splitlines(), entries)
    print("\n".join(missing) or "public surface: everything is there")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
