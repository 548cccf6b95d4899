"""The mpirun lines that managed platforms make, as templates, and how they become words.

Used by the tests on one host (`test_platform_lines`) and on two (`tests/hosts`). Words in capitals are places: HOSTS,
COUNT, INTERFACE, HOSTFILE, VARIABLES, PYTHON and SCRIPT.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# Amazon SageMaker, by the training toolkit of its images and by version 3 of its SDK; -m mpi4py ends all ranks when one
# fails.
SAGEMAKER_TOOLKIT = (
    "mpirun --host HOSTS -np COUNT --allow-run-as-root --display-map --tag-output -mca btl_tcp_if_include INTERFACE "
    "-mca oob_tcp_if_include INTERFACE -mca plm_rsh_no_tree_spawn 1 -bind-to socket -map-by slot -mca pml ob1 "
    "-mca btl ^openib -mca orte_abort_on_non_zero_status 1 -mca btl_vader_single_copy_mechanism none "
    "-x NCCL_MIN_NRINGS=4 -x NCCL_SOCKET_IFNAME=INTERFACE -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH VARIABLES "
    "PYTHON -m mpi4py SCRIPT"
)
SAGEMAKER_SDK_3 = (
    "mpirun --host HOSTS -np COUNT --allow-run-as-root --tag-output -mca btl_tcp_if_include INTERFACE "
    "-mca oob_tcp_if_include INTERFACE -mca plm_rsh_no_tree_spawn 1 -mca pml ob1 -mca btl ^openib "
    "-mca orte_abort_on_non_zero_status 1 -mca btl_vader_single_copy_mechanism none -mca plm_rsh_num_concurrent 1 "
    "-x NCCL_SOCKET_IFNAME=INTERFACE -x LD_LIBRARY_PATH -x PATH VARIABLES PYTHON -m mpi4py SCRIPT"
)
# The line that Azure ML's page about Horovod shows.
AZURE_ML = (
    "mpirun -x HOROVOD_AUTOTUNE=1 -np COUNT -H HOSTS -bind-to none -map-by slot -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH "
    "-x PATH -mca pml ob1 -mca btl ^openib VARIABLES PYTHON SCRIPT"
)
# The line of Gradient's page about MPI, with the hostfile that it writes.
GRADIENT = (
    "mpirun --allow-run-as-root -np COUNT --hostfile HOSTFILE -bind-to none -map-by slot -x NCCL_DEBUG=INFO "
    "-mca pml ob1 -mca btl ^openib VARIABLES PYTHON SCRIPT"
)
LINES = {
    "sagemaker-toolkit": SAGEMAKER_TOOLKIT,
    "sagemaker-sdk-3": SAGEMAKER_SDK_3,
    "azure-ml": AZURE_ML,
    "gradient": GRADIENT,
}
# Spelled with one hyphen these are words of Open MPI 3 and 4 only.
HYPHENS = {"-bind-to": "--bind-to", "-map-by": "--map-by"}


def with_two_hyphens(line: str) -> str:
    """As Open MPI 5 takes it."""
    return " ".join(HYPHENS.get(word, word) for word in line.split())


def exported(variables: Mapping[str, str]) -> list[str]:
    """The words that give the ranks these variables of mpirun's environment."""
    return [word for name in variables for word in ("-x", name)]


def words_of(line: str, places: Mapping[str, Sequence[str]], interface: str) -> list[str]:
    """A line's words with what belongs into its places."""
    moved = [word.replace("INTERFACE", interface) for word in line.split()]
    return [word for each in moved for word in places.get(each, [each])]
