"""The rows of the one table of settings, in the order in which --help and docs/settings.md show them.

`values` offers them; nobody else imports this file. It holds no logic: what a row means is said in `setting`.
"""

from __future__ import annotations

from typing import Final

from horovod._core.settings.setting import Flag, Setting

_ONE_LAUNCH: Final = "Tensors that travel together are always packed by one launch"
_ALWAYS_BY_EVENTS: Final = "Operations of a GPU always complete by events: the host does not wait for them"
_WITHOUT_ASKING: Final = "Compiled functions hold collectives without it, on the CPU and on CUDA"
_NO_CCL: Final = (
    "This version has no oneCCL backend: our own shared memory and connections move the tensors. Use gloo, or mpi"
    " for an MPI library"
)
_OWN_ADASUM: Final = "Our own shared memory and connections move the tensors of Adasum, whatever moves the others"
_LOG_LEVELS: Final = ("trace", "debug", "info", "warning", "error", "fatal")


def _on_off(name: str, hide_negative: bool = False, group: str = "") -> tuple[Flag, ...]:
    return (
        Flag((f"--{name}",), const=True, group=group or name),
        Flag((f"--no-{name}",), const=False, hidden=hide_negative, group=group or name),
    )


def _value(*names: str, metavar: str = "N", group: str = "") -> tuple[Flag, ...]:
    return (Flag(names, metavar=(metavar,), group=group),)


# fmt: off
_JOB: Final = (
    Setting("num_proc", "int_or_auto", None,
            "Number of processes to start; auto = the slots of the hosts given, else one per GPU, else one per core. In"
            " an allocation of Slurm, LSF, PBS or Flux it may be left out: all of its slots are taken.",
            "General", "launcher", unit="processes", minimum=1, flags=_value("-n", "-np", "--num-proc", metavar="NP"),
            keyword="num_proc", old_keywords=("np",)),
    Setting("disable_cache", "bool", False,
            "Do not use cached results of host checks. There is no cache: every start checks all hosts, by the one"
            " connection that it needs to each. So this changes nothing.",
            "General", "launcher", flags=(Flag(("--disable-cache",), const=True),), keyword="disable_cache"),
    Setting("start_timeout_s", "float", 30.0,
            "Time limit for every host to answer and, once the first rank has called hvd.init(), for the other ranks"
            " to call it. A rank in hvd.init() waits for HOROVOD_GLOO_TIMEOUT_SECONDS where that is longer.",
            "General", "both",
            env="HOROVOD_START_TIMEOUT", unit="seconds", minimum=0, flags=_value("--start-timeout", metavar="SECONDS"),
            keyword="start_timeout"),
    Setting("link_timeout_s", "float", 5.0,
            "How long a link between hosts may be cut. A job survives a cut that is at least half a second shorter. A"
            " host that is silent for longer counts as lost, and is named at most 1.5 s later, or after twice this"
            " time and 2 s where UDP does not pass. A switch that restarts or a virtual machine that moves needs 1 to"
            " 3 s. A process that dies is noticed at once in any case.", "General",
            "both", env="HOROVOD_LINK_TIMEOUT", unit="seconds", minimum=1, maximum=120,
            flags=_value("--link-timeout", metavar="SECONDS"), engine_field=True),
    Setting("network_interfaces", "names", None, "Network interfaces that traffic between hosts may use.", "General",
            "launcher", flags=(Flag(("--network-interfaces",), metavar=("NIC,NIC",)), Flag(("--network-interface",),
            metavar=("NIC",))), keyword="network_interfaces", old_keywords=("network_interface",)),
    Setting("output_filename", "text", None,
            "Directory to which each rank's output is also written, as rank.0/stdout and rank.0/stderr; with more"
            " than ten ranks rank.00, and so on.", "General", "launcher",
            flags=_value("--output-filename", metavar="DIR"), keyword="output_filename"),
    Setting("shown_ranks", "ranks", None,
            "Show the output of these ranks only, such as 0,3-5. The files of --output-filename contain the output of"
            " all ranks, and the last lines of a rank that fails are always shown.", "General", "launcher",
            flags=_value("--ranks", metavar="RANKS")),
    Setting("stdin_rank", "int", None,
            "Rank that reads the standard input of horovodrun, for input() and debuggers such as pdb; it must run on"
            " the same machine. The other ranks have no input.", "General", "launcher", minimum=0,
            flags=_value("--stdin-rank", metavar="RANK")),
    Setting("max_restarts", "int", 0,
            "Maximum number of times that the whole job is started again when it fails. HOROVOD_RESTART_COUNT holds"
            " the number of restarts, 0 at first; state that the ranks do not save themselves is lost.",
            "General", "launcher",
            unit="restarts", minimum=0, maximum=1000000, flags=_value("--max-restarts")),
    Setting("dry_run", "bool", False,
            "Print what would be started where, with which variables, and start nothing.", "General", "launcher",
            flags=(Flag(("--dry-run",), const=True),)),
    Setting("verbose", "bool", False, "Print what the launcher does.",
            "General", "launcher", flags=(Flag(("--verbose",),
            const=True),), keyword="verbose"),
    Setting("summary", "tristate", None,
            "Show at the end of a job how much of its time each rank computed, waited and transferred, and which rank"
            " was the slowest. Not given: on a terminal, when the job ends well.", "Monitoring", "launcher",
            flags=_on_off("summary")),
    Setting("metrics_port", "int", None,
            "Port on which horovodrun serves figures of all ranks to Prometheus while the job runs; needs the package"
            " prometheus_client. Not given: none.", "Monitoring", "launcher", minimum=1, maximum=65535,
            flags=_value("--metrics-port", metavar="PORT")),
    Setting("metrics_address", "text", "127.0.0.1",
            "Address on which --metrics-port listens. It has no password: anybody who can reach it reads the figures.",
            "Monitoring", "launcher", flags=_value("--metrics-address", metavar="ADDRESS")),
    Setting("status_format", "choice", "text",
            "How --status shows the running jobs: for people, or once as JSON for programs.", "Monitoring",
            "launcher", choices=("text", "json"), flags=_value("--status-format", metavar="FORMAT")),
    Setting("config_file", "text", None,
            "YAML file of settings. Flags win over it, and it wins over the environment.", "General", "launcher",
            flags=_value("--config-file", metavar="PATH")),
    Setting("hosts", "text", None,
            "Hosts and their slots, e.g. host1:2,[fe80::2]:4; slots default to 1. Wins over a scheduler's allocation.",
            "Hosts", "launcher", flags=_value("-H", "--hosts", metavar="HOST:SLOTS,...", group="hosts"),
            keyword="hosts"),
    Setting("hostfile", "text", None, "File with one 'name slots=N' per line; '#' begins a comment.", "Hosts",
            "launcher", flags=_value("-hostfile", "--hostfile", metavar="PATH", group="hosts"), keyword="hostfile"),
    Setting("host_discovery_script", "text", None,
            "Executable that prints the current hosts, one 'host' or 'host:slots' per line; run every second. Selects"
            " an elastic job. What it writes to stderr is shown.", "Hosts", "launcher",
            flags=_value("--host-discovery-script", metavar="PATH", group="hosts"), keyword="host_discovery_script"),
    Setting("use_gloo", "bool", False, "Start and connect the ranks with our own launcher (the default).", "Controller",
            "launcher", flags=(Flag(("--gloo",), const=True, group="controller"),), keyword="use_gloo"),
    Setting("use_mpi", "bool", False, "Start the ranks with the mpirun of PATH.", "Controller", "launcher",
            flags=(Flag(("--mpi",), const=True, group="controller"),), keyword="use_mpi"),
    Setting("use_jsrun", "bool", False, "Start the ranks with the jsrun of PATH, in a job of LSF.", "Controller",
            "launcher", flags=(Flag(("--jsrun",), const=True, group="controller"),)),
    Setting("controller", "choice", None,
            "How the ranks are controlled, as --gloo and --mpi. Only the key of the file counts: the launcher sets the"
            " variable for the ranks, where scripts may read it.", "Controller",
            "both", env="HOROVOD_CONTROLLER", choices=("gloo", "mpi"), yaml="controller"),
    Setting("ssh_port", "int", None, "Port of the ssh server on other hosts.", "SSH", "launcher", minimum=1,
            maximum=65535, flags=_value("-p", "--ssh-port", metavar="PORT"), keyword="ssh_port"),
    Setting("ssh_identity_file", "text", None, "Private key for ssh.", "SSH", "launcher", flags=_value("-i", "-I",
            "--ssh-identity-file", metavar="PATH"), keyword="ssh_identity_file"),
    Setting("min_num_proc", "int", None,
            "Minimum number of processes; selects an elastic job. Without it: the number at the start.",
            "Elastic", "launcher", unit="processes", minimum=1,
            flags=_value("--min-np", "--min-num-proc", metavar="NP"), keyword="min_num_proc", old_keywords=("min_np",)),
    Setting("max_num_proc", "int", None, "Maximum number of processes of an elastic job; not given: all slots.",
            "Elastic", "launcher", unit="processes", minimum=1,
            flags=_value("--max-np", "--max-num-proc", metavar="NP"), keyword="max_num_proc",
            old_keywords=("max_np",), requires="min_num_proc"),
    Setting("slots_per_host", "int", None, "Slots of hosts that the discovery script prints without a number.",
            "Elastic", "launcher", unit="slots", minimum=1, flags=_value("--slots-per-host"), keyword="slots",
            requires="host_discovery_script"),
    Setting("elastic_timeout_s", "float", 600.0,
            "Time to wait for enough slots at the start of an elastic job, and for enough ranks to continue.",
            "Elastic", "launcher", env="HOROVOD_ELASTIC_TIMEOUT", unit="seconds", minimum=0,
            flags=_value("--elastic-timeout", metavar="SECONDS"), requires="min_num_proc"),
    Setting("reset_limit", "int", None,
            "Maximum number of times that an elastic job continues with a changed set of ranks.", "Elastic",
            "launcher", unit="resets", minimum=0, flags=_value("--reset-limit"), keyword="reset_limit",
            requires="min_num_proc"),
    Setting("blacklist_cooldown_range", "int_pair", None,
            "Minimum and maximum time for which a host that was lost, or on which a rank failed, gets no ranks; the"
            " time doubles with every failure. Not given: permanently, except for the last host that is left.",
            "Elastic", "launcher", unit="seconds", flags=(Flag(("--blacklist-cooldown-range",), metavar=("MIN",
            "MAX")),), keyword="cooldown_range", requires="min_num_proc"),
    Setting("elastic_log", "text", None,
            "Log file of an elastic job: a line of JSON for every event and every decision, with the reason.",
            "Elastic", "launcher", flags=_value("--elastic-log", metavar="PATH"),
            requires="min_num_proc"),
    Setting("elastic_commit_dir", "text", None,
            "Folder, or URL for fsspec, to which rank 0 writes a commit of hvd.elastic.run from time to time, and"
            " from which a new job loads the newest complete one, so that even the loss of all ranks loses little."
            " Without a key, anybody who can write there can run programs in the job.", "Elastic", "both",
            env="HOROVOD_ELASTIC_COMMIT_DIR", flags=_value("--elastic-commit-dir", metavar="DIR")),
    Setting("elastic_commit_interval_s", "float", 60.0,
            "Minimum time between two written commits.", "Elastic", "both",
            env="HOROVOD_ELASTIC_COMMIT_INTERVAL", unit="seconds", minimum=0,
            flags=_value("--elastic-commit-interval", metavar="SECONDS"), requires="elastic_commit_dir"),
    Setting("elastic_commit_keep", "int", 2, "Number of written commits to keep.", "Elastic", "both",
            env="HOROVOD_ELASTIC_COMMIT_KEEP", unit="commits", minimum=1, flags=_value("--elastic-commit-keep"),
            requires="elastic_commit_dir"),
    Setting("elastic_commit_key_file", "text", None,
            "File with a secret, readable by its owner only, that authenticates written commits; commits that fail"
            " the check are not read. Required for a URL.", "Elastic", "both", env="HOROVOD_ELASTIC_COMMIT_KEY_FILE",
            flags=_value("--elastic-commit-key-file", metavar="PATH"), requires="elastic_commit_dir"),
    Setting("elastic", "bool", False, "This rank belongs to an elastic job; set by the launcher.", "Elastic", "both",
            env="HOROVOD_ELASTIC"),
)

_ENGINE: Final = (
    Setting("fusion_threshold_bytes", "int", 128 << 20,
            "Maximum number of bytes of tensors that are reduced as one batch; 0 = no fusion.", "Tuneable parameters",
            env="HOROVOD_FUSION_THRESHOLD", unit="bytes", minimum=0, coarse_unit="megabytes", coarse_factor=1 << 20,
            flags=_value("--fusion-threshold-mb", metavar="MB"), yaml="params.fusion_threshold_mb", engine_field=True),
    Setting("cycle_time_ms", "float", 0.0,
            "Maximum time to wait for more tensors before a batch starts. Never delays a waiting thread. Upstream's"
            " default is 1.", "Tuneable parameters", env="HOROVOD_CYCLE_TIME", unit="milliseconds", minimum=0,
            flags=_value("--cycle-time-ms", metavar="MS"), yaml="params.cycle_time_ms", engine_field=True),
    Setting("cache_capacity", "int", -1,
            "Number of tensor names whose negotiation is cached, in order of first use; 0 = none, -1 = as many as fit"
            " into 64 MB.",
            "Tuneable parameters", env="HOROVOD_CACHE_CAPACITY", unit="names", minimum=-1,
            flags=_value("--cache-capacity"), yaml="params.cache_capacity", engine_field=True),
    Setting("hierarchical_allreduce", "tristate", None,
            "Reduce inside each host first, then between hosts: allreduce and reducescatter. Not given: decided by"
            " topology. On GPUs: allreduce only, if this is on or if NCCL works only inside hosts. Rank 0's value"
            " counts.", "Tuneable parameters", env="HOROVOD_HIERARCHICAL_ALLREDUCE",
            flags=_on_off("hierarchical-allreduce"), yaml="params.hierarchical_allreduce", engine_field=True),
    Setting("hierarchical_allgather", "tristate", None,
            "Send each byte between two hosts once and share it inside: allgather, broadcast and alltoall. Not given:"
            " decided by topology. On GPUs: broadcast only, if NCCL works only inside hosts and this is not off. Rank"
            " 0's value counts.", "Tuneable parameters", env="HOROVOD_HIERARCHICAL_ALLGATHER",
            flags=_on_off("hierarchical-allgather"), yaml="params.hierarchical_allgather", engine_field=True),
    Setting("torus_allreduce", "tristate", None,
            "Reduce in two dimensions: inside each host, and each part between the hosts. Another name for"
            " hierarchical_allreduce: on turns that on, off leaves it unchanged. Rank 0's value counts.",
            "Tuneable parameters", env="HOROVOD_TORUS_ALLREDUCE", flags=_on_off("torus-allreduce"),
            yaml="params.torus_allreduce", engine_field=True),
    Setting("disable_group_fusion", "bool", False, "Never fuse a grouped operation with others.", "Tuneable parameters",
            env="HOROVOD_DISABLE_GROUP_FUSION", engine_field=True),
    Setting("deterministic", "bool", False,
            "Results do not depend on which tensors happen to be fused: same bits in every run.", "Tuneable parameters",
            env="HOROVOD_DETERMINISTIC", engine_field=True),
    Setting("spin_us", "float", -1.0,
            "How long a waiting thread spins before it blocks; -1 = by ranks per usable core.", "Tuneable parameters",
            env="HOROVOD_SPIN_US", unit="microseconds", minimum=-1, engine_field=True),
    Setting("store_mode", "choice", "auto",
            "How bytes are stored into shared memory and into large results; auto = measured.",
            "Tuneable parameters", env="HOROVOD_STORE_MODE", choices=("auto", "ordinary", "streaming"),
            engine_field=True),
    Setting("resident_gradients", "bool", False,
            "Keep PyTorch's gradients in shared memory, where they are reduced without a copy.", "Tuneable parameters",
            env="HOROVOD_RESIDENT_GRADIENTS"),
    Setting("resident_bytes", "int", -1,
            "Address space for tensors in shared memory, half of it (at most 512 MiB) for results of allgather and"
            " alltoall; 0 = none, -1 = half of the memory, at most 64 GiB with resident gradients and 1 GiB without,"
            " and, for all ranks of a host together, a quarter of the address space limit (ulimit -v).",
            "Tuneable parameters", env="HOROVOD_RESIDENT_BYTES", unit="bytes", minimum=-1, engine_field=True),
    Setting("transport", "choice", "auto",
            "How ranks exchange data; shm = refuse unless memory is shared, tcp = sockets even inside a host.",
            "Tuneable parameters", env="HOROVOD_TRANSPORT", choices=("auto", "shm", "tcp")),
    Setting("full_mesh_ranks", "int", 32,
            "Up to this many ranks, a job on several hosts connects every pair of ranks when it starts. A larger job"
            " connects only ranks of the same host and neighbours in the negotiation; other connections are opened"
            " when they are needed. Rank 0's value counts.",
            "Tuneable parameters", env="HOROVOD_FULL_MESH_RANKS", unit="ranks", minimum=0),
    Setting("autotune", "bool", False,
            "While the job trains, search for the fusion threshold, the cycle time and the algorithms between hosts"
            " that move most bytes per second, and keep them. Settings that are given explicitly stay as they are."
            " Needs scikit-learn.",
            "Autotune", env="HOROVOD_AUTOTUNE", flags=_on_off("autotune", hide_negative=True),
            yaml="autotune.enabled"),
    Setting("autotune_log", "text", None, "CSV file of the samples, which rank 0 writes.", "Autotune",
            env="HOROVOD_AUTOTUNE_LOG", flags=_value("--autotune-log-file", metavar="PATH"), yaml="autotune.log_file",
            requires="autotune"),
    Setting("autotune_warmup_samples", "int", 3, "Number of samples at the start that are discarded.", "Autotune",
            env="HOROVOD_AUTOTUNE_WARMUP_SAMPLES", unit="samples", minimum=0, flags=_value("--autotune-warmup-samples"),
            yaml="autotune.warmup_samples", requires="autotune"),
    Setting("autotune_steps_per_sample", "int", 10, "Training steps per sample; 0 means 1.", "Autotune",
            env="HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", unit="steps", minimum=0,
            flags=_value("--autotune-steps-per-sample"), yaml="autotune.steps_per_sample", requires="autotune"),
    Setting("autotune_bayes_opt_max_samples", "int", 20,
            "Maximum number of samples of the search, before the run-off; 0 = do not search.", "Autotune",
            env="HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", unit="samples", minimum=0,
            flags=_value("--autotune-bayes-opt-max-samples"), yaml="autotune.bayes_opt_max_samples",
            requires="autotune"),
    Setting("autotune_gaussian_process_noise", "float", 0.8,
            "Noise of a sample: its variance as a share of that of all samples.", "Autotune",
            env="HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", minimum=0, maximum=1,
            flags=_value("--autotune-gaussian-process-noise", metavar="X"), yaml="autotune.gaussian_process_noise",
            requires="autotune"),
    Setting("timeline_path", "text", None,
            "Trace file of all ranks, which rank 0 writes; DYNAMIC = hvd.start_timeline() names the file later.",
            "Timeline",
            env="HOROVOD_TIMELINE", flags=_value("--timeline-filename", metavar="PATH"), yaml="timeline.filename",
            engine_field=True),
    Setting("timeline_mark_cycles", "bool", False, "Mark the start of every batch in the trace.", "Timeline",
            env="HOROVOD_TIMELINE_MARK_CYCLES", flags=_on_off("timeline-mark-cycles", hide_negative=True),
            yaml="timeline.mark_cycles", engine_field=True, requires="timeline_path"),
    Setting("timeline_ranks", "choice", "all",
            "all = the trace has a process for each rank; 0 = it shows what rank 0 sees, a process for each tensor. "
            "The latter is for tools that read this form.", "Timeline",
            env="HOROVOD_TIMELINE_RANKS", choices=("all", "0"), flags=_value("--timeline-ranks", metavar="RANKS"),
            yaml="timeline.ranks", engine_field=True, requires="timeline_path"),
    Setting("timeline_max_mb", "int", 1024,
            "Size at which the trace file becomes FILE.1, in the place of an older one, and a new file begins; 0 = no "
            "bound.", "Timeline",
            env="HOROVOD_TIMELINE_MAX_MB", unit="MB", minimum=0, maximum=1 << 20, yaml="timeline.max_mb",
            engine_field=True),
    Setting("stall_check_disable", "bool", False, "Do not report ranks that other ranks wait for.", "Stall check",
            env="HOROVOD_STALL_CHECK_DISABLE", flags=(Flag(("--no-stall-check",), const=True, group="stall-check"),
            Flag(("--stall-check",), const=False, hidden=True, group="stall-check")), yaml="stall_check.enabled",
            yaml_inverted=True, engine_field=True),
    Setting("stall_warning_s", "float", 60.0,
            "Time after which a tensor that waits for some ranks is reported, with the names of these ranks.",
            "Stall check",
            env="HOROVOD_STALL_CHECK_TIME_SECONDS", unit="seconds", minimum=0,
            flags=_value("--stall-check-warning-time-seconds", metavar="SECONDS"),
            yaml="stall_check.warning_time_seconds", engine_field=True),
    Setting("stall_shutdown_s", "float", None,
            "Time after which a waiting tensor fails the job; 0 = never. Not given: never, but see hang_shutdown_s.",
            "Stall check",
            env="HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", unit="seconds", minimum=0,
            flags=_value("--stall-check-shutdown-time-seconds", metavar="SECONDS"),
            yaml="stall_check.shutdown_time_seconds", engine_field=True),
    Setting("hang_shutdown_s", "float", 1800.0,
            "horovodrun ends a job when all of its ranks have stood still for this long: no processor time, no input"
            " or output, no line written; 0 = never. The default does not apply to a job of one rank, nor to programs"
            " of which none has called hvd.init(), nor with stall_shutdown_s, --no-stall-check or --stdin-rank.",
            "Stall check", "launcher",
            env="HOROVOD_HANG_SHUTDOWN_TIME_SECONDS", unit="seconds", minimum=0,
            flags=_value("--hang-shutdown-time-seconds", metavar="SECONDS"),
            yaml="stall_check.hang_shutdown_time_seconds"),
    Setting("dump_on_stall", "bool", True,
            "When a stall is reported, every rank dumps what it waits for and where its threads stand; horovodrun says "
            "which rank is behind.", "Dumps", "both", env="HOROVOD_DUMP_ON_STALL",
            flags=_on_off("dump-on-stall", hide_negative=False), yaml="dump.on_stall"),
    Setting("dump_signal", "choice", "sigusr2",
            "Signal on which a rank writes a dump, and on which horovodrun asks all ranks for dumps. A program that"
            " handles the signal itself keeps its handler.", "Dumps", "both", env="HOROVOD_DUMP_SIGNAL",
            choices=("none", "sigusr1", "sigusr2"), aliases=(("usr1", "sigusr1"), ("usr2", "sigusr2")),
            flags=_value("--dump-signal", metavar="NAME"),
            yaml="dump.signal"),
    Setting("dump_directory", "text", None,
            "Directory for dumps, which only this user can read. Without it horovodrun keeps them until the job ends,"
            " and copies the last ones into the working directory if the job fails.",
            "Dumps", "both", env="HOROVOD_DUMP_DIR", flags=_value("--dump-directory", metavar="DIR"),
            yaml="dump.directory"),
    Setting("dump_call_sites", "bool", False,
            "Dumps also name the line that submitted each asynchronous operation. Each submission then takes a few"
            " microseconds longer.", "Dumps", "both", env="HOROVOD_DUMP_CALL_SITES",
            flags=(Flag(("--dump-call-sites",), const=True),), yaml="dump.call_sites"),
    Setting("check_parameters", "int", None,
            "Number of first steps of each optimizer after which the parameters of all ranks are compared; the job"
            " fails if they differ; 0 = no check. All ranks must make the same steps. If not given, distributed"
            " optimizers and tapes fail at the first step if numbers or shapes differ, and warn after the second if"
            " values do, and a job that has reduced no gradient says so at its end.", "Library", "both",
            env="HOROVOD_CHECK_PARAMETERS",
            unit="steps", minimum=0, flags=_value("--check-parameters"), yaml="library_options.check_parameters"),
    Setting("collective_timeout_s", "float", 30.0,
            "Time limit to connect at hvd.init(), and for a running collective to make progress; also the time for"
            " the other ranks to receive the goodbye of hvd.shutdown() (5 s at least); 0 = no limit.", "Library",
            env="HOROVOD_GLOO_TIMEOUT_SECONDS", unit="seconds", minimum=0,
            flags=_value("--gloo-timeout-seconds", metavar="SECONDS"), yaml="library_options.gloo_timeout_seconds",
            engine_field=True),
    Setting("thread_affinity", "cores", None,
            "Core of the background thread: one per local rank, or one number to count up from.", "Library",
            env="HOROVOD_THREAD_AFFINITY", unit="cores", minimum=0, flags=_value("--thread-affinity",
            metavar="CORE,..."), yaml="library_options.thread_affinity", engine_field=True),
    Setting("expected_size", "int", None,
            "Number of ranks that the job must have; otherwise hvd.init() fails. For launchers that may start another"
            " number, or each rank as a job of its own; not needed with horovodrun.", "Library",
            env="HOROVOD_EXPECTED_SIZE", unit="ranks", minimum=1),
    Setting("expected_hosts", "int", None,
            "Number of hosts that the job must have; otherwise hvd.init() fails. For platforms that ignore a list of"
            " hosts and may place all ranks on one of them.", "Library", env="HOROVOD_EXPECTED_HOSTS", unit="hosts",
            minimum=1),
    Setting("dynamic_process_sets", "bool", False, "Process sets may be added and removed after hvd.init().", "Library",
            env="HOROVOD_DYNAMIC_PROCESS_SETS"),
    Setting("cpu_operations", "choice", None,
            "What moves tensors in main memory. gloo, the default: Horovod's own shared memory and connections, which"
            " are the faster. mpi: the MPI library of the mpirun, mpiexec or srun that started the ranks, if all of"
            " them can use it (docs/mpi.md).",
            "Library", env="HOROVOD_CPU_OPERATIONS", choices=("gloo", "mpi", "ccl"),
            unmet_choices=(("ccl", _NO_CCL),)),
    Setting("gloo_iface", "names", None, "Network interface between hosts.", "Library", env="HOROVOD_GLOO_IFACE"),
    Setting("mpi_threads_disable", "bool", False,
            "Do not ask MPI for full multithreading: one thread calls MPI where the ranks only meet through it, one"
            " thread at a time where it moves tensors. A program that uses MPI itself must then not call it while"
            " Horovod works.",
            "Library", env="HOROVOD_MPI_THREADS_DISABLE", flags=_on_off("mpi-threads-disable", hide_negative=True),
            yaml="library_options.mpi_threads_disable"),
    Setting("mpi_library", "text", None,
            "The MPI library through which ranks on several hosts meet under mpirun, mpiexec or srun, and which moves"
            " tensors with HOROVOD_CPU_OPERATIONS=mpi. Not given: the library that the process has loaded, or the"
            " launcher's.", "Library", env="HOROVOD_MPI_LIBRARY"),
    Setting("secret_file", "text", None,
            "File with the secret that ranks on several hosts share when their launcher provides none: 64 hexadecimal"
            " digits, the same on every host, readable by this user only. The ranks then meet at an address, not"
            " through MPI.",
            "Library", env="HOROVOD_SECRET_FILE"),
    Setting("meeting_address", "text", None,
            "HOST:PORT on the host of rank 0 where ranks with a secret file meet. Without it: MASTER_ADDR, or the"
            " first host of srun or jsrun, and a port derived from the name of the job.",
            "Library", env="HOROVOD_MEETING_ADDRESS"),
    Setting("adasum_mpi_chunk_size_bytes", "int", 1 << 30, "Bytes per message of Adasum over MPI.", "Library",
            env="HOROVOD_ADASUM_MPI_CHUNK_SIZE", unit="bytes", minimum=0, inert=_OWN_ADASUM),
    Setting("ccl_cache", "bool", False, "oneCCL's cache.", "Library", env="HOROVOD_CCL_CACHE", inert=_NO_CCL),
    Setting("mpi_args", "text", None, "Additional arguments for mpirun, or for the MPI of jsrun.",
            "Library", "launcher",
            flags=_value("--mpi-args", metavar="WORDS"), keyword="mpi_args", requires="use_mpi|use_jsrun"),
    Setting("tcp", "bool", False,
            "Keep NCCL off InfiniBand: sets NCCL_IB_DISABLE=1 for the ranks. Ranks of one host still share memory."
            " With --mpi or --jsrun, Spectrum MPI uses TCP only, too.",
            "Library", "launcher", flags=(Flag(("--tcp",), const=True),)),
    Setting("binding_args", "text", None,
            "Replaces mpirun's options for binding processes; with --jsrun, the options that say where ranks run.",
            "Library", "launcher", flags=_value("--binding-args", metavar="WORDS"), requires="use_mpi|use_jsrun"),
    Setting("gpu_operations", "choice", None,
            "What moves tensors on GPUs. nccl, the default: NCCL (for AMD's GPUs RCCL) where all ranks of a process"
            " set can use it, else through the host's memory, with a warning. gloo (or host): through the host's"
            " memory. mpi and ddl are refused with the first such tensor (docs/gpu.md).",
            "GPUs", env="HOROVOD_GPU_OPERATIONS", choices=("nccl", "gloo", "mpi", "ddl"), aliases=(("host", "gloo"),)),
    *(
        Setting(f"gpu_{operation}", "choice", None,
                f"As gpu_operations, for {operation} only. Another value than that of gpu_operations is refused with "
                "the first tensor on a GPU.",
                "GPUs", env=f"HOROVOD_GPU_{operation.upper()}", choices=("nccl", "gloo", "mpi", "ddl"),
                aliases=(("host", "gloo"),))
        for operation in ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter")
    ),
    Setting("nccl_path", "text", None,
            "The NCCL to use: libnccl.so.2 (for AMD's GPUs librccl.so.1), or the folder that holds it. Not given: the"
            " library that the process has loaded, that of a wheel beside Python, or the system's (docs/gpu.md).",
            "GPUs", env="HOROVOD_NCCL_PATH"),
    Setting("nccl_home", "text", None,
            "Folder that is searched for NCCL's lib/libnccl.so.2 before all others, as upstream's builds name it.",
            "GPUs", env="HOROVOD_NCCL_HOME"),
    Setting("nccl_lib", "text", None, "Folder that is searched for libnccl.so.2 after nccl_home, before all others.",
            "GPUs", env="HOROVOD_NCCL_LIB"),
    Setting("nccl_max_ctas", "int", 0,
            "Maximum number of thread blocks that an NCCL communicator uses on a GPU at once, which also determines"
            " how much GPU memory it takes; 0 = NCCL chooses.",
            "GPUs", env="HOROVOD_NCCL_MAX_CTAS", unit="thread blocks", minimum=0, maximum=1024),
    Setting("num_nccl_streams", "int", 1,
            "Number of streams that operations on a GPU use in turn, each with an NCCL communicator for each process"
            " set: the smallest value of its ranks counts, and at most its number of ranks. 0 means 1.", "GPUs",
            env="HOROVOD_NUM_NCCL_STREAMS", unit="streams", minimum=0, maximum=32, flags=_value("--num-nccl-streams"),
            yaml="library_options.num_nccl_streams"),
    Setting("batch_d2d_memcopies", "bool", True, "Batch the GPU copies into the fusion buffer.", "GPUs",
            env="HOROVOD_BATCH_D2D_MEMCOPIES", inert=_ONE_LAUNCH),
    Setting("enable_async_completion", "bool", True, "Complete GPU work by events.", "GPUs",
            env="HOROVOD_ENABLE_ASYNC_COMPLETION", inert=_ALWAYS_BY_EVENTS),
    Setting("disable_nvtx_ranges", "bool", False, "Emit no NVTX ranges for profilers.", "GPUs",
            env="HOROVOD_DISABLE_NVTX_RANGES"),
    Setting("enable_xla_ops", "bool", False, "XLA custom calls for GPU allreduce.", "GPUs",
            env="HOROVOD_ENABLE_XLA_OPS", inert=_WITHOUT_ASKING),
    Setting("log_level", "choice", "warning", "Lowest severity of the messages that are shown.", "Logging", "both",
            env="HOROVOD_LOG_LEVEL", choices=_LOG_LEVELS,
            aliases=(("warn", "warning"), *((str(number), word) for number, word in enumerate(_LOG_LEVELS))),
            flags=_value("--log-level", metavar="LEVEL"), yaml="logging.level", engine_field=True),
    Setting("log_hide_time", "bool", False, "Leave the time out of the launcher's and the ranks' log lines.", "Logging",
            "both", engine_field=True,
            env="HOROVOD_LOG_HIDE_TIME", flags=(Flag(("--log-without-timestamp",), const=True, group="timestamp"),
            Flag(("--log-with-timestamp",), const=False, hidden=True, group="timestamp"),
            Flag(("--log-hide-timestamp",), const=True, hidden=True, deprecated="--log-without-timestamp",
            group="timestamp"), Flag(("--no-log-hide-timestamp",), const=False, hidden=True,
            deprecated="--log-with-timestamp", group="timestamp")), yaml="logging.with_timestamp", yaml_inverted=True),
    Setting("prefix_output_with_timestamp", "bool", False, "Put the time before each line of the ranks' output.",
            "Logging", "launcher", flags=(Flag(("-prefix-timestamp", "--prefix-output-with-timestamp"), const=True,
            group="timestamp"),)),
)

# fmt: on
ROWS: Final[tuple[Setting, ...]] = _JOB + _ENGINE
