"""The one table of settings, and the frozen values that a process runs with.

The environment parser, the launcher's flags, the keys of its YAML file, the keywords of `horovod.run`, the core's
`hvd_config` and docs/settings.md all come from `SETTINGS`. Values are read once, at start, and can be shown with
`Settings.describe`. Used by `horovod._core` (at `hvd.init()`) and by `horovod.runner`; imports no framework and not the
core. Which rank a process is, and where it meets the others, is not a setting: see `IDENTITY_VARIABLES`.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Optional

from horovod._core.errors import InvalidArgumentError
from horovod._core.settings.setting import Flag, Setting
from horovod._core.settings.table import ROWS

__all__ = [
    "BY_ENV",
    "BY_NAME",
    "Flag",
    "IDENTITY_VARIABLES",
    "NOTICED_VARIABLE",
    "PYTHON_LEVELS",
    "SETTINGS",
    "Setting",
    "Settings",
    "from_environ",
    "notices",
    "of_this_process",
    "suggestion",
    "unknown_variables",
]

SETTINGS: Final[tuple[Setting, ...]] = ROWS
BY_NAME: Final[dict[str, Setting]] = {setting.name: setting for setting in SETTINGS}
BY_ENV: Final[dict[str, Setting]] = {setting.env: setting for setting in SETTINGS if setting.env}

# What a launcher passes to a rank about its place; read by horovod._net and horovod._core.life.context, not settings
# that a user turns.
IDENTITY_VARIABLES: Final[tuple[str, ...]] = (
    "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE", "HOROVOD_CROSS_RANK",
    "HOROVOD_CROSS_SIZE", "HOROVOD_HOSTNAME", "HOROVOD_RENDEZVOUS_DIR",
    "HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT", "HOROVOD_JOB_ID", "HOROVOD_SECRET_KEY",
    "HOROVOD_EPOCH", "HOROVOD_RESTART_COUNT",
)  # fmt: skip

# Read by other parts (Spark, backends) or, in upstream, at build time. Recipes set them everywhere, so they do not
# cause a warning.
_OTHER_VARIABLES: Final[tuple[str, ...]] = (
    "HOROVOD_SPARK_START_TIMEOUT", "HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX", "HOROVOD_SPARK_PYTHONPATH",
    "HOROVOD_SPARK_WORK_DIR", "HOROVOD_LIBRARY", "HOROVOD_LANE", "HOROVOD_SIMD", "HOROVOD_GPU",
    "HOROVOD_ALLOW_MIXED_GPU_IMPL", "HOROVOD_CUDA_HOME", "HOROVOD_ROCM_HOME",
    "HOROVOD_NCCL_INCLUDE", "HOROVOD_NCCL_LINK", "HOROVOD_NVTX_INCLUDE", "HOROVOD_CMAKE",
    "HOROVOD_DEBUG", "HOROVOD_SKIP_COMPILE", "HOROVOD_LOCAL_VERSION",
)  # fmt: skip
_OTHER_PREFIXES: Final[tuple[str, ...]] = (
    "HOROVOD_WITH_", "HOROVOD_WITHOUT_", "HOROVOD_BUILD_", "HOROVOD_TEST_",
)  # fmt: skip

# What Python's logging calls the levels of `log_level`, which knows none below "debug".
PYTHON_LEVELS: Final = {"trace": 5, "debug": 10, "info": 20, "warning": 30, "error": 40, "fatal": 50}

# Set by our launcher for the ranks after it has said what there is to say about the settings, so that it is said once
# per job.
NOTICED_VARIABLE: Final = "_HOROVOD_SETTINGS_NOTICED"

_OF_A_SERVICE: Final = re.compile(
    r"(HOROVOD(?:_[A-Z0-9_]+?)??)_(?:SERVICE_HOST|SERVICE_PORT(?:_.+)?|PORT(?:_[0-9]+_(?:TCP|UDP|SCTP)(?:_[A-Z]+)?)?)"
)
_COMMON_LETTERS: Final = 4
_NEARLY: Final = 0.8

_DEFAULT_RESIDENT_BYTES: Final = 64 << 30  # with resident gradients
_RESULTS_BYTES: Final = 1 << 30  # without: for results of collectives
_RESIDENT_GRAIN_BYTES: Final = 2 << 20
_SHARE_OF_LIMIT: Final = 4  # the rest is the program's, whose frameworks map several GB
_NO_DEADLINE_S: Final = 1e9

_log: Final = logging.getLogger("horovod.settings")


class _Given(NamedTuple):
    value: Any
    source: str


class Settings:
    """Frozen values of all settings, as attributes: `settings.cycle_time_ms`.

    Args:
        layers: (source, {name: value}) from the weakest to the strongest; values are parsed already. Names that no
            layer has get their default.
    """

    __slots__ = ("_given",)

    def __init__(self, layers: Iterable[tuple[str, Mapping[str, Any]]] = ()) -> None:
        given: dict[str, _Given] = {}
        for source, values in layers:
            for name, value in values.items():
                if name not in BY_NAME:
                    raise InvalidArgumentError(f"There is no setting {name!r}.{suggestion(name, BY_NAME)}")
                given[name] = _Given(value, source)
        object.__setattr__(self, "_given", given)

    def __getattr__(self, name: str) -> Any:
        # Private and unknown names fall through to the usual error, which also keeps copy and pickle from recursing.
        setting = BY_NAME.get(name)
        if setting is None:
            raise AttributeError(f"There is no setting {name!r}.{suggestion(name, BY_NAME)}")
        given = self._given.get(name)
        return setting.default if given is None else given.value

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Settings are frozen; set '{name}' in the environment before hvd.init().")

    def __getstate__(self) -> dict[str, _Given]:
        return dict(self._given)

    def __setstate__(self, state: dict[str, _Given]) -> None:
        object.__setattr__(self, "_given", state)

    def __iter__(self) -> Iterator[str]:
        return iter(BY_NAME)

    def source(self, name: str) -> str:
        """Where the value comes from: "default", "environment", "flag", ... as the layer was called."""
        given = self._given.get(name)
        return "default" if given is None else given.source

    def given(self) -> dict[str, Any]:
        """The values that were given, by name; no defaults."""
        return {name: item.value for name, item in self._given.items()}

    def replace(self, source: str, **values: Any) -> Settings:
        """A copy in which `values` override everything else."""
        copy = Settings()
        object.__setattr__(copy, "_given", dict(self._given))
        for name, value in Settings([(source, values)])._given.items():
            copy._given[name] = value
        return copy

    def to_environ(self) -> dict[str, str]:
        """The environment variables from which another process reads the same values of all settings but the launcher's
        own."""
        environ: dict[str, str] = {}
        for name, item in self._given.items():
            setting = BY_NAME[name]
            if not setting.env or setting.scope == "launcher" or item.value is None:
                continue
            if not _has_meaning(setting, self):
                continue
            environ[setting.env] = setting.text(item.value)
        return environ

    def engine_fields(self, local_rank: int = 0, local_size: int = 1) -> dict[str, Any]:
        """The settings part of `hvd_config`, by field name: int, float, or str for a path.

        Args:
            local_rank: of this process; picks its core from `thread_affinity`.
            local_size: number of the ranks of this host; each maps the memory of all.

        Raises:
            InvalidArgumentError: `thread_affinity` lists cores, but none for this local rank.
        """
        fields = {
            setting.name: _engine_value(setting, getattr(self, setting.name))
            for setting in SETTINGS
            if setting.engine_field
        }
        fields["thread_affinity"] = self._core_of(local_rank)
        fields["resident_bytes"] = self._resident_bytes(local_size)
        if fields["timeline_path"].upper() == "DYNAMIC":
            fields["timeline_path"] = ""
        fields["collective_timeout_s"] = self.standstill_s
        return fields

    @property
    def standstill_s(self) -> float:
        """How long a rank may stand still before it is given up: `collective_timeout_s`, where 0 is without end."""
        return float(self.collective_timeout_s) or _NO_DEADLINE_S

    def describe(self, only_given: bool = False) -> str:
        """One line per setting: name, value, unit and where the value comes from."""
        lines = []
        for setting in SETTINGS:
            source = self.source(setting.name)
            if only_given and source == "default":
                continue
            value = getattr(self, setting.name)
            shown = "not given" if value is None else setting.text(value)
            unit = f" {setting.unit}" if setting.unit and value is not None and setting.kind != "cores" else ""
            origin = f"{source} {setting.env}" if source == "environment" else source
            lines.append(f"{setting.name} = {shown}{unit} ({origin})")
        return "\n".join(lines)

    def _core_of(self, local_rank: int) -> int:
        cores: Optional[tuple[int, ...]] = self.thread_affinity
        if cores is None:
            return -1
        if len(cores) == 1:
            return cores[0] + local_rank
        if local_rank >= len(cores):
            raise InvalidArgumentError(
                f"HOROVOD_THREAD_AFFINITY names {len(cores)} cores, but this is local rank {local_rank}; give one core "
                "per local rank, or a single number to count up from."
            )
        return cores[local_rank]

    def _resident_bytes(self, local_size: int) -> int:
        size: int = self.resident_bytes
        if size < 0:
            import resource

            memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            most = _DEFAULT_RESIDENT_BYTES if self.resident_gradients else _RESULTS_BYTES
            limit, _ = resource.getrlimit(resource.RLIMIT_AS)
            file_limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)  # which holds for a memfd too
            most = most if file_limit == resource.RLIM_INFINITY else min(most, file_limit // 2)
            size = resident_bytes_for(memory, None if limit == resource.RLIM_INFINITY else limit, local_size, most)
        return size // _RESIDENT_GRAIN_BYTES * _RESIDENT_GRAIN_BYTES


def resident_bytes_for(memory: int, limit: Optional[int], local_size: int, most: int) -> int:
    """How much address space a rank gets for tensors in shared memory; pages are committed when a tensor is placed
    there. All ranks of a host must come to the same, so nothing counts in which they differ by nature.

    Args:
        memory: of the host, in bytes.
        limit: of a process's address space, in bytes; None: there is none.
        local_size: number of ranks whose memory each rank maps.
        most: in bytes.
    """
    size = min(memory // 2, most)
    return size if limit is None else min(size, limit // _SHARE_OF_LIMIT // local_size)


def of_this_process() -> Settings:
    """The settings as the environment has them now: for `init`, which keeps them in the session, and for what runs
    without a session. The one place where settings meet `os.environ`."""
    return from_environ(os.environ)


def from_environ(environ: Mapping[str, str]) -> Settings:
    """Reads every setting that has an environment variable. An empty variable counts as absent.

    Args:
        environ: usually `os.environ`.

    Raises:
        InvalidArgumentError: a variable has a value that its setting cannot take.
    """
    values: dict[str, Any] = {}
    for name, setting in BY_ENV.items():
        text = environ.get(name, "")
        if text.strip():
            values[setting.name] = setting.parse(text, name)
    return Settings([("environment", values)])


def say_notices(settings: Settings) -> None:
    """Logs once in this process what has been set and does nothing, unless our launcher has said so. One rank of a job
    does it.

    Args:
        settings: by `of_this_process`.
    """
    if os.environ.get(NOTICED_VARIABLE):
        return
    for text in unknown_variables(os.environ) + notices(settings):
        if text not in _said:
            _said.add(text)
            _log.warning("%s", text)


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """One sentence per HOROVOD_* variable that nothing reads, with the name that was probably meant."""
    known = (*BY_ENV, *IDENTITY_VARIABLES, *_OTHER_VARIABLES)
    texts = []
    for name in sorted(environ):
        if name.startswith("HOROVOD_"):
            if name in known or name.startswith(_OTHER_PREFIXES) or _is_of_a_service(name, environ):
                continue
            meant = suggestion(name, known)
        else:
            meant = suggestion(f"HOROVOD_{name.partition('_')[2].upper()}", known) if _resembles_ours(name) else ""
            if not meant:
                continue
        texts.append(f"{name} is not a variable that Horovod knows, so it has no effect.{meant}")
    return texts


def _is_of_a_service(name: str, environ: Mapping[str, str]) -> bool:
    """Kubernetes has made it, for a Service whose name begins with "horovod"."""
    found = _OF_A_SERVICE.fullmatch(name)
    return found is not None and f"{found.group(1)}_SERVICE_HOST" in environ


def _resembles_ours(name: str) -> bool:
    """Its first word is nearly HOROVOD, or HOROVOD in other letters."""
    word = name.partition("_")[0].upper()
    if len(set(word) & set("HOROVOD")) < _COMMON_LETTERS or len(word) > len("HOROVOD") + _COMMON_LETTERS:
        return False
    import difflib  # not before somebody has mistyped

    return difflib.SequenceMatcher(None, word, "HOROVOD").ratio() >= _NEARLY


def notices(settings: Settings) -> list[str]:
    """One sentence per setting that was given and does nothing: inert hints, and parts of something that is off."""
    texts = []
    for name, value in settings.given().items():
        setting = BY_NAME[name]
        if value == setting.default:
            continue
        if setting.inert:
            texts.append(f"{label(settings, name)} has no effect. {setting.inert}.")
        elif value in dict(setting.unmet_choices):
            reason = dict(setting.unmet_choices)[value]
            texts.append(f"{label(settings, name)}={setting.text(value)} has no effect. {reason}.")
        elif not _has_meaning(setting, settings):
            # The remedy uses the spelling that the user used.
            remedy = BY_NAME[setting.requires.partition("|")[0]]
            in_environ = remedy.env and label(settings, name) == setting.env
            spelled = remedy.env if in_environ else remedy.flags[0].names[-1]
            texts.append(f"{label(settings, name)} has no effect without {spelled}.")
    return texts


def _has_meaning(setting: Setting, settings: Settings) -> bool:
    return not setting.requires or any(getattr(settings, name) for name in setting.requires.split("|"))


def label(settings: Settings, name: str) -> str:
    """The setting as the user spelled it: its variable, or its flag."""
    setting = BY_NAME[name]
    from_environ = settings.source(name) == "environment" or not setting.flags
    return setting.env if from_environ else setting.flags[0].names[-1]


def suggestion(name: str, known: Iterable[str]) -> str:
    """ " Did you mean X?" or an empty text."""
    import difflib  # not before somebody has mistyped

    # What all names begin with says nothing about likeness.
    words = {word.removeprefix("HOROVOD_").lstrip("-"): word for word in known}
    close = difflib.get_close_matches(name.removeprefix("HOROVOD_").lstrip("-"), words, n=1, cutoff=0.7)
    return f" Did you mean {words[close[0]]}?" if close else ""


def _engine_value(setting: Setting, value: Any) -> Any:
    if setting.kind == "tristate":
        return -1 if value is None else int(value)
    if setting.kind == "bool":
        return int(value)
    if setting.kind == "choice":
        return setting.choices.index(value)
    if setting.kind == "text":
        return value or ""
    if setting.kind == "float":
        return value or 0.0  # not given: never
    return value


_said: Final[set[str]] = set()
