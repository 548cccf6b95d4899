"""What `horovodrun -h` says on one screen, and in which order `--help` says everything. Used by `flags`."""

from __future__ import annotations

from typing import Final

USAGE: Final = "horovodrun [options] -np NP { COMMAND | -m MODULE } [argument ...]"
DESCRIPTION: Final = "Runs a command as NP ranks of one Horovod job, and waits until they end."
EPILOG: Final = (
    "Options come before COMMAND; what follows is passed to it. A flag wins over the --config-file, which wins over "
    "the environment. Example: horovodrun -np 4 python train.py --epochs 3. What works on this machine and why not: "
    "horovodrun [-H HOST:SLOTS,...] doctor [--json]"
)

# At most 20 lines, none longer than 79 characters.
SHORT: Final = f"""\
usage: {USAGE}

{DESCRIPTION}

  horovodrun -np 4 python train.py --epochs 3               on this machine
  horovodrun -np 8 -H server1:4,server2:4 python train.py   on two, over ssh
  horovodrun -np 4 --min-np 2 python train.py               goes on without two

  -np NP                  ranks to start; auto = one per GPU, else one per core
  -H HOST:SLOTS,...       hosts and their slots; --hostfile PATH reads a file
  -m MODULE               run a module with this Python, instead of a command
  --output-filename DIR   write each rank's output to DIR/rank.0/stdout, ...
  --ranks 0,3-5           show the output of these ranks only
  --dry-run, --verbose    say what would be started; say what the launcher does
  --timeline-filename F   write a trace of all operations
  --status                show running jobs and their slowest ranks

  horovodrun doctor       what works on this machine, and why the rest does not
  horovodrun --help       every option
"""

# What one does first comes first.
FIRST: Final = "To begin with"
FIRST_SETTINGS: Final = (
    "num_proc",
    "hosts",
    "hostfile",
    "host_discovery_script",
    "output_filename",
    "shown_ranks",
    "stdin_rank",
    "verbose",
    "dry_run",
)
SECTIONS: Final = (
    FIRST,
    "Timeline",
    "Monitoring",
    "Elastic",
    "SSH",
    "General",
    "Stall check",
    "Dumps",
    "Controller",
    "GPUs",
    "Tuneable parameters",
    "Autotune",
    "Library",
    "Logging",
)
