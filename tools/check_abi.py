"""Compares include/horovod/horovod.h with its ctypes mirror, python/horovod/_native/abi.py.

Run by the test suite and by hand (`python tools/check_abi.py [header]`): prints every difference in constants,
structure fields (order, names, types) and function prototypes, and exits with 1 if there is one. It parses the small,
regular C of that header with regular expressions; it is no C parser.
"""

from __future__ import annotations

import ctypes
import pathlib
import re
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))

from horovod._native import abi  # noqa: E402

HEADER = ROOT / "include" / "horovod" / "horovod.h"

# C type -> the ctypes types that mirror it. Addresses of arrays are declared as c_void_p on the hot path.
TYPES: dict[str, tuple[Any, ...]] = {
    "void": (None,),
    "int32_t": (ctypes.c_int32,),
    "int64_t": (ctypes.c_int64,),
    "uint8_t": (ctypes.c_uint8,),
    "uint32_t": (ctypes.c_uint32,),
    "uint64_t": (ctypes.c_uint64,),
    "size_t": (ctypes.c_size_t,),
    "double": (ctypes.c_double,),
    "hvd_status": (ctypes.c_int32,),
    "hvd_handle": (ctypes.c_int64,),
    "char*": (ctypes.c_char_p, ctypes.POINTER(ctypes.c_char)),
    "void*": (ctypes.c_void_p,),
    "void**": (ctypes.POINTER(ctypes.c_void_p),),
    "int32_t*": (ctypes.POINTER(ctypes.c_int32),),
    "int64_t*": (ctypes.POINTER(ctypes.c_int64),),
    "size_t*": (ctypes.POINTER(ctypes.c_size_t),),
    "hvd_handle*": (ctypes.POINTER(ctypes.c_int64), ctypes.c_void_p),
    "hvd_op*": (ctypes.c_void_p,),
    "hvd_peer*": (ctypes.POINTER(abi.HvdPeer),),
    "hvd_config*": (ctypes.POINTER(abi.HvdConfig),),
    "hvd_topology*": (ctypes.POINTER(abi.HvdTopology),),
    "hvd_parameters*": (ctypes.POINTER(abi.HvdParameters),),
    "hvd_mpi*": (ctypes.POINTER(abi.HvdMpi),),
    "hvd_gpu*": (ctypes.POINTER(abi.HvdGpu),),
    "hvd_steps*": (ctypes.POINTER(abi.HvdSteps),),
    "hvd_result*": (ctypes.POINTER(abi.HvdResult),),
    "hvd_done_fn": (abi.DoneFunction,),
    "hvd_log_fn": (abi.LogFunction,),
}


def without_comments(text: str) -> str:
    """The header without comments and preprocessor lines, on single spaces."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"//[^\n]*", " ", text)
    return re.sub(r"\s+", " ", re.sub(r"^\s*#[^\n]*$", " ", text, flags=re.M))


def split_declaration(text: str) -> tuple[str, list[tuple[str, int]]]:
    """ "int32_t rank, size" -> ("int32_t", [("rank", 0), ("size", 0)]); the number is an array's length."""
    text = text.replace("const ", "").strip()
    match = re.match(r"([A-Za-z_]\w*)\s*(\**)\s*(.*)$", text)
    if match is None:
        raise ValueError(f"cannot read the declaration {text!r}")
    names: list[tuple[str, int]] = []
    for declarator in match.group(3).split(","):
        found = re.fullmatch(r"\s*(\w*)\s*(?:\[\s*(\d+)\s*\])?\s*", declarator)
        if found is None:
            raise ValueError(f"cannot read the declarator {declarator!r} of {text!r}")
        names.append((found.group(1), int(found.group(2) or 0)))
    return match.group(1) + match.group(2), names


def parse_enums(text: str) -> dict[str, dict[str, int]]:
    """Enum name ("" for the nameless) -> constants without HVD_."""
    enums: dict[str, dict[str, int]] = {}
    for body, name in re.findall(r"enum \w* ?\{([^}]*)\} ?(\w*) ?;", text):
        members = enums.setdefault(name, {})
        for item in filter(None, (part.strip() for part in body.split(","))):
            key, _, value = item.partition("=")
            members[key.strip().removeprefix("HVD_")] = int(value, 0)
    return enums


def parse_structs(text: str) -> dict[str, list[tuple[str, str, int]]]:
    """Struct name -> (field, C type, array length), in order."""
    structs: dict[str, list[tuple[str, str, int]]] = {}
    for body, name in re.findall(r"typedef struct \w+ \{([^}]*)\} (\w+) ?;", text):
        fields: list[tuple[str, str, int]] = []
        for declaration in filter(None, (part.strip() for part in body.split(";"))):
            c_type, names = split_declaration(declaration)
            fields.extend((field, c_type, length) for field, length in names)
        structs[name] = fields
    return structs


def parse_parameters(text: str) -> list[str]:
    """The C types of a parameter list."""
    return [] if text.strip() == "void" else [split_declaration(part)[0] for part in text.split(",")]


def parse_functions(text: str) -> dict[str, tuple[str, list[str]]]:
    """Function -> (result, parameter types)."""
    pattern = r"HVD_API ((?:const )?\w+ ?\*?) ?(hvd_\w+) ?\(([^)]*)\) ?;"
    return {
        name: (result.replace("const ", "").replace(" ", ""), parse_parameters(parameters))
        for result, name, parameters in re.findall(pattern, text)
    }


def parse_callbacks(text: str) -> dict[str, tuple[str, list[str]]]:
    """Function-pointer typedef -> (result, parameter types)."""
    pattern = r"typedef (\w+) \(\*(\w+)\)\(([^)]*)\) ?;"
    return {name: (result, parse_parameters(parameters)) for result, name, parameters in re.findall(pattern, text)}


def mirrors(c_type: str, length: int, mirror: Any) -> bool:
    """True when `mirror` is how ctypes spells the C type."""
    if length:
        return getattr(mirror, "_length_", 0) == length and mirrors(c_type, 0, mirror._type_)
    return mirror in TYPES.get(c_type, ())


def compare_names(what: str, header: Any, mirror: Any) -> list[str]:
    """Names that only one side has."""
    return [f"{what} {name}: only in the header" for name in header if name not in mirror] + [
        f"{what} {name}: only in abi.py" for name in mirror if name not in header
    ]


def compare_structs(text: str) -> list[str]:
    """Differences in order, names and types of the fields."""
    header = parse_structs(text)
    found = compare_names("struct", header, abi.STRUCTURES)
    for name, fields in header.items():
        mirrored = list(getattr(abi.STRUCTURES.get(name), "_fields_", fields))
        if [field for field, _, _ in fields] != [field[0] for field in mirrored]:
            found.append(
                f"{name}: fields are {[f[0] for f in fields]} in the header, {[f[0] for f in mirrored]} in abi.py"
            )
        elif name in abi.STRUCTURES:
            pairs = zip(fields, mirrored)
            found.extend(
                f"{name}.{f}: {t}[{n}] in the header, {m[1]} in abi.py"
                for (f, t, n), m in pairs
                if not mirrors(t, n, m[1])
            )
    return found


def compare_prototypes(header: dict[str, tuple[str, list[str]]], mirror: dict[str, tuple[Any, Any]]) -> list[str]:
    """Differences between functions or callbacks."""
    found = compare_names("function", header, mirror)
    for name, (result, parameters) in header.items():
        if name not in mirror:
            continue
        result_mirror, parameter_mirrors = mirror[name]
        if not mirrors(result, 0, result_mirror):
            found.append(f"{name}: returns {result} in the header, {result_mirror} in abi.py")
        if len(parameters) != len(parameter_mirrors):
            found.append(f"{name}: {len(parameters)} parameters in the header, {len(parameter_mirrors)} in abi.py")
        pairs = enumerate(zip(parameters, parameter_mirrors))
        found.extend(
            f"{name}: parameter {i} is {c} in the header, {m} in abi.py" for i, (c, m) in pairs if not mirrors(c, 0, m)
        )
    return found


def differences(header_text: str) -> list[str]:
    """Every difference between the header and the mirror."""
    version = re.search(r"#define HVD_ABI_VERSION (\d+)", header_text)
    text = without_comments(header_text)
    found: list[str] = []
    if version is None or int(version.group(1)) != abi.ABI_VERSION:
        found.append(
            f"HVD_ABI_VERSION: {version.group(1) if version else 'absent'} in the header, {abi.ABI_VERSION} in abi.py"
        )
    enums = parse_enums(text)
    found += compare_names("enum", enums, abi.ENUMS)
    found += [
        f"enum {n}: {e} in the header, {abi.ENUMS[n]} in abi.py"
        for n, e in enums.items()
        if n in abi.ENUMS and e != abi.ENUMS[n]
    ]
    found += compare_structs(text)
    found += compare_prototypes(parse_functions(text), abi.FUNCTIONS)
    callbacks = {name: (mirror._restype_, mirror._argtypes_) for name, mirror in abi.CALLBACKS.items()}
    return found + compare_prototypes(parse_callbacks(text), callbacks)


def main(arguments: list[str]) -> int:
    """Prints the differences; 1 when there are any."""
    path = pathlib.Path(arguments[0]) if arguments else HEADER
    found = differences(path.read_text(encoding="utf-8"))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
