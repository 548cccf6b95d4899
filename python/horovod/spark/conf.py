"""Spark's settings for tasks that fail, as pairs for `SparkConf.set(*pair)`: how often an elastic job is given new
tasks, and where. Under the names that Spark has had for them since 3.1 (`spark.excludeOnFailure.*`).

A pair about executors or nodes counts only with `SPARK_CONF_BLACKLIST_ENABLED`. Settings of an application: they must
be there before its session starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = [
    "SPARK_CONF_ALWAYS_RESTART_FAILED_TASK",
    "SPARK_CONF_BLACKLIST_DISABLED",
    "SPARK_CONF_BLACKLIST_ENABLED",
    "SPARK_CONF_DEFAULT_VALUES",
    "SPARK_CONF_DONT_REUSE_EXECUTOR_FOR_SAME_TASK",
    "SPARK_CONF_DONT_REUSE_FAILED_EXECUTOR",
    "SPARK_CONF_DONT_REUSE_FAILED_EXECUTOR_IN_APP",
    "SPARK_CONF_DONT_REUSE_FAILING_NODE",
    "SPARK_CONF_DONT_REUSE_FAILING_NODE_IN_APP",
    "SPARK_CONF_DONT_REUSE_NODE_FOR_SAME_TASK",
    "SPARK_CONF_MAX_INT",
    "SPARK_CONF_MAX_INT_MINUS_ONE",
    "SPARK_CONF_REUSE_EXECUTOR_ALWAYS_FOR_SAME_TASK",
    "SPARK_CONF_REUSE_EXECUTOR_ONCE_FOR_SAME_TASK",
    "SPARK_CONF_REUSE_FAILED_EXECUTOR",
    "SPARK_CONF_REUSE_FAILED_EXECUTOR_IN_APP",
    "SPARK_CONF_REUSE_FAILING_NODE",
    "SPARK_CONF_REUSE_FAILING_NODE_IN_APP",
    "SPARK_CONF_REUSE_NODE_ALWAYS_FOR_SAME_TASK",
    "SPARK_CONF_REUSE_NODE_ONCE_FOR_SAME_TASK",
]

_EXCLUDE: Final = "spark.excludeOnFailure"
_PER_EXECUTOR: Final = f"{_EXCLUDE}.task.maxTaskAttemptsPerExecutor"
_PER_NODE: Final = f"{_EXCLUDE}.task.maxTaskAttemptsPerNode"
_STAGE_EXECUTOR: Final = f"{_EXCLUDE}.stage.maxFailedTasksPerExecutor"
_STAGE_NODE: Final = f"{_EXCLUDE}.stage.maxFailedExecutorsPerNode"
_APP_EXECUTOR: Final = f"{_EXCLUDE}.application.maxFailedTasksPerExecutor"
_APP_NODE: Final = f"{_EXCLUDE}.application.maxFailedExecutorsPerNode"

SPARK_CONF_MAX_INT: Final = str((1 << 31) - 1)
SPARK_CONF_MAX_INT_MINUS_ONE: Final = str((1 << 31) - 2)  # Spark wants fewer attempts on a node than failures

SPARK_CONF_ALWAYS_RESTART_FAILED_TASK: Final = ("spark.task.maxFailures", SPARK_CONF_MAX_INT)
SPARK_CONF_BLACKLIST_DISABLED: Final = (f"{_EXCLUDE}.enabled", "false")
SPARK_CONF_BLACKLIST_ENABLED: Final = (f"{_EXCLUDE}.enabled", "true")

# Within a job: for other tasks, where one has failed.
SPARK_CONF_REUSE_FAILED_EXECUTOR: Final = (_STAGE_EXECUTOR, SPARK_CONF_MAX_INT)
SPARK_CONF_DONT_REUSE_FAILED_EXECUTOR: Final = (_STAGE_EXECUTOR, "1")
SPARK_CONF_REUSE_FAILING_NODE: Final = (_STAGE_NODE, SPARK_CONF_MAX_INT)
SPARK_CONF_DONT_REUSE_FAILING_NODE: Final = (_STAGE_NODE, "1")

# For the task that has failed itself.
SPARK_CONF_REUSE_EXECUTOR_ALWAYS_FOR_SAME_TASK: Final = (_PER_EXECUTOR, SPARK_CONF_MAX_INT)
SPARK_CONF_REUSE_EXECUTOR_ONCE_FOR_SAME_TASK: Final = (_PER_EXECUTOR, "2")
SPARK_CONF_DONT_REUSE_EXECUTOR_FOR_SAME_TASK: Final = (_PER_EXECUTOR, "1")
SPARK_CONF_REUSE_NODE_ALWAYS_FOR_SAME_TASK: Final = (_PER_NODE, SPARK_CONF_MAX_INT_MINUS_ONE)
SPARK_CONF_REUSE_NODE_ONCE_FOR_SAME_TASK: Final = (_PER_NODE, "2")
SPARK_CONF_DONT_REUSE_NODE_FOR_SAME_TASK: Final = (_PER_NODE, "1")

# For the jobs that follow in the same application.
SPARK_CONF_REUSE_FAILED_EXECUTOR_IN_APP: Final = (_APP_EXECUTOR, SPARK_CONF_MAX_INT)
SPARK_CONF_DONT_REUSE_FAILED_EXECUTOR_IN_APP: Final = (_APP_EXECUTOR, "1")
SPARK_CONF_REUSE_FAILING_NODE_IN_APP: Final = (_APP_NODE, SPARK_CONF_MAX_INT)
SPARK_CONF_DONT_REUSE_FAILING_NODE_IN_APP: Final = (_APP_NODE, "1")

# What holds where nothing is set.
SPARK_CONF_DEFAULT_VALUES: Final[Mapping[str, str]] = {
    "spark.task.maxFailures": "4",
    f"{_EXCLUDE}.enabled": "false",
    _PER_EXECUTOR: "1",
    _PER_NODE: "2",
    _STAGE_EXECUTOR: "2",
    _STAGE_NODE: "2",
    _APP_EXECUTOR: "2",
    _APP_NODE: "2",
}
