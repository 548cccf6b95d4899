"""`hvd.init()` under the launchers of others, for real: torchrun, Open MPI, MPICH, Intel MPI, Slurm.

Slow; `tools/launcher_envs.py` provides the launchers.
"""
