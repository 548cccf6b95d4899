"""What holds for all suites: skips that CI does not take, signals that jobs must feel, and which files begin.

With HVD_TEST_REQUIRE=all a skipped test fails, unless the reason of its skip begins with "Not here: ". CI sets it: a
suite must not vanish because something was not installed. "Not here: " is for what nobody can install, such as a right
that the machine does not give, or a combination that does not exist.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Generator
from typing import Optional, Union

import matrices
import pytest
import shares

VARIABLE = "HVD_TEST_REQUIRE"
BY_NATURE = "Not here: "

# Tests open terminals of their own, which do what they are told by codes, whatever this is run in.
if os.environ.get("TERM") == "dumb":
    os.environ["TERM"] = "xterm"
os.environ.pop("JPY_PARENT_PID", None)

# Files that take long, the longest first.
LONG = (
    "test_document_scripts",
    "test_contract",
    "test_contract_tensorflow",
    "test_keras_fit",
    "test_elastic_frameworks",
    "test_benchmarks",
    "test_elastic_benchmarks",
    "test_keras_examples",
    "test_frameworks_over_hosts",
    "test_training_over_hosts",
    "test_launchers",
    "test_tensorflow_jobs",
    "test_mpi_over_hosts",
    "test_gpu_jobs",
    "test_elastic_jobs",
)

try:
    import hypothesis
except ImportError:  # an environment for the tests of a wheel, which need none
    pass
else:  # two cores that are busy with something else are no defect of what is tested
    hypothesis.settings.register_profile("any machine", deadline=None)
    hypothesis.settings.load_profile("any machine")

CRASHED: list[object] = []  # processes of xdist
Report = Union[pytest.TestReport, pytest.CollectReport]
Wrapper = Generator[None, Report, Report]


def pytest_configure(config: pytest.Config) -> None:
    """Refuses a misspelt value, which would require nothing; lets jobs have signals that this process ignores."""
    value = os.environ.get(VARIABLE, "")
    if value not in ("", "all"):
        raise pytest.UsageError(f"{VARIABLE} is {value!r}; it may be 'all' or unset.")
    with contextlib.suppress(ImportError):  # an environment for the tests of this file alone
        from jobs import warm

        warm.own()
    for number in (signal.SIGINT, signal.SIGHUP):
        # A program in the background, or under nohup, ignores them, and so do its children: jobs of ours that tests
        # interrupt. What is caught here is as usual in them.
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--some", action="store_true", help="of the files of tests only CI's share (tests/shares.py)")


@pytest.hookimpl(trylast=True)  # when markers have deselected what they deselect
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files that take long begin early, so that no process is left alone with one in the end."""
    items.sort(key=lambda item: LONG.index(item.path.stem) if item.path.stem in LONG else len(LONG))
    if config.getoption("some"):
        files = shares.some_files([item.path for item in items])
        config.hook.pytest_deselected(items=[item for item in items if item.path not in files])
        items[:] = [item for item in items if item.path in files]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object, error: Optional[object]) -> None:
    """Of xdist: a process of tests has ended; with an error, it crashed."""
    if error is not None:
        CRASHED.append(node)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """After a crash tests have not run: that is no failure of the kind that is tried once more."""
    if CRASHED:
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the seed of the matrices, also if they passed."""
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    number = sum("matrix" in report.keywords and report.when == "call" for report in reports)
    if number:
        terminalreporter.write_line(f"{number} tests of matrices: {matrices.repeated()} repeats them")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Wrapper:
    """Of a test, or of its fixtures."""
    return _judged((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Wrapper:
    """Of a module that skips all of its tests while it is imported."""
    return _judged((yield))


def _judged(report: Report) -> Report:
    if os.environ.get(VARIABLE) and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        if not reason.startswith(BY_NATURE):
            report.outcome = "failed"
            report.longrepr = f"{VARIABLE}=all, and this was skipped: {reason}"
    return report
