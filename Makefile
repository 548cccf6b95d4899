# The verbs of this project. `make demo` and `make test` do everything themselves, on a machine with Python 3.11, g++ and make.
#
#   demo      trains a small CNN on real data with 1 and 2 ranks and checks what it claims
#   test      build, C++ tests, checks, Python tests that finish in a few minutes
#   test-all  what `test` leaves out: the wheel, and what has changed of late of the slow tests, of clang-tidy, of the C++
#             tests under the sanitizers and of fuzzing, and a share of the rest
#   times     where the time of the tests and of CI's parts has gone since the last `make clean`, and what failed once;
#             fails where CI took too long
#   test-fast of `test` the Python tests alone
#   test-slow launchers (torchrun, MPI, Slurm), more ranks, long stress, faults, the long suites of TensorFlow and Keras
#   test-gpu  what needs a GPU; says so where there is none
#   test-long the same with every combination of the fault matrix and of the stress
#   matrices  every matrix of the tests whole, of which CI runs a twentieth; HVD_TEST_SEED repeats one
#   test-tensorflows  the contract suite and Keras on the oldest TensorFlow that is supported and the first with Keras 3;
#             by itself, because their environments take 3 GB
#   test-jaxs   horovod.jax on the oldest JAX, and with flax, equinox and orbax; their environments take 1.3 GB
#   test-mxnet  horovod.mxnet with MXNet 1.9.1 and NumPy 1.23.5, whose environment takes 0.5 GB
#   test-torchs  horovod.torch and torch.distributed on the oldest and the newest PyTorch; fetches 3 GB for each
#   test-lightning  Lightning, Accelerate and Hugging Face's Trainer on two ranks; fetches 1.5 GB
#   test-ray    horovod.ray on a real Ray cluster of two nodes; fetches 0.3 GB
#   test-spark  horovod.spark in real sessions of Spark 4 and 3.5; needs Java 17, and fetches 2 GB for each
#   chaos     elastic jobs that lose ranks and regain them until FAULTS have happened; SEED repeats them
#   tidy      clang-tidy, over all of the C++ sources
#   fuzz      every parser of bytes, FUZZ_SECONDS of a processor each
#   check     linters, types, architecture checks
#   bench     benchmarks against the peers that can be installed, as much as fits into five minutes
#   bench-full  the same at length: every row and every number of ranks, three times, for published tables
#   bench-page  docs/results, a page with pictures, from what bench or bench-full has measured
#   site      the documentation as a site, with an API reference, into build/site/html
#   screenshots  of the site and of a trace in Perfetto, by a headless browser that comes by pip; fetches 0.3 GB
#   wheel     wheels for x86_64 and aarch64 that need no compiler where they are installed, into dist/
#   wheel-test  one of them, made from the source package, in a fresh environment
#   native-test-aarch64  the C++ tests for aarch64 under qemu-user, which must be there; by hand, takes long
#   docs      writes what is generated: docs/settings.md, and python/horovod/_native/abi.py from the C interface
#   build     libhorovod.so into the source tree
#   fakes     a CUDA driver, an NCCL, the same of ROCm, and a profiler for tests without a GPU, into build/release
#   dev       the virtual environment
#   frameworks  TensorFlow, Keras and JAX in it, for their tests
#   launchers the launchers of others, for theirs, and what checks deploy/
#   hosts     what the tests of several hosts are made of: sshd and network namespaces
#   count     lines of the product, of which code; tests, benchmarks, tools; the fullest folders
#   clean     removes what the others made

# HVD_TEST_REQUIRE=all, which CI sets, makes every test fail that would be skipped because something is not installed.

PYTHON ?= python3
VENV   := $(CURDIR)/.venv
BIN    := $(VENV)/bin
JOBS   ?= $(shell nproc)
# The lowest priority: work that no test waits for.
ASIDE  := nice -n 19
# A lower priority: tests with deadlines, and builds that tests wait for.
BESIDE := nice -n 5

# Runs a command as a part of the whole: `$(call PART,name,command)` notes its seconds for `make times`.
TIMES  := $(CURDIR)/build/times
PART    = mkdir -p $(TIMES); begun=$$(date +%s); { $(2); } && echo "$(1) $$(($$(date +%s) - begun))" >>$(TIMES)/parts

# A file of tests runs in one process. Most wait more than they compute, so more files run side by side than there are
# processors. What fails is run once more and named: the tests kill, stop and time processes on machines with two cores.
# A test that fails and then passes is a defect all the same, to be looked into; `make times` names it. A process of
# tests that dies is not replaced, and ends the whole with exit code 3 (tests/conftest.py): xdist, which shares out files,
# would wait for ever. A test that waits in C does not hear its timeout: after a quarter of an hour the stacks of its
# threads are printed, and its process ends.
NO_HANG = -o faulthandler_timeout=900 -o faulthandler_exit_on_timeout=true
# $(1): the tests' marks; $(2): processes more than processors; $(3): name of the record; $(4): more options.
PYTEST = rm -f $(TIMES)/$(3).xml $(TIMES)/$(3).again.xml; \
  python -m pytest -q -n $(shell expr $(JOBS) + $(2)) --dist loadfile --no-loadscope-reorder --max-worker-restart 0 $(NO_HANG) $(4) -m "$(1)" --junit-xml $(TIMES)/$(3).xml \
  || { [ $$? -eq 1 ] || exit 1; echo "FAILED ONCE: the tests named above. Once more:"; \
  python -m pytest -v -m "$(1)" --last-failed --last-failed-no-failures none --junit-xml $(TIMES)/$(3).again.xml; }
export PATH := $(BIN):$(PATH)
unexport PYTEST_ADDOPTS

# The tests of what works on GPUs that know no driver by name: with the address sanitizer they run over HIP and RCCL as
# well (HVD_TEST_PLATFORM=hip build/release/hvd_tests $(ROCM_TESTS) without).
ROCM_TESTS = cuda_ gpu_ staged_ phases_ -contract -fake -jax

.PHONY: count times fakes demo test test-fast test-gpu test-all test-slow test-slow-some test-long matrices test-tensorflows test-jaxs test-mxnet test-torchs test-lightning test-spark test-ray check checks bench bench-full bench-page docs build dev clean tidy tidy-some chaos native-test native-test-build native-test-aside asan-build asan-test tsan-build tsan-test native-test-aarch64 fuzz site screenshots wheel wheel-test frameworks launchers hosts

PIP := $(BIN)/pip install --quiet --disable-pip-version-check

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# All that building needs.
$(VENV)/.tools: requirements-dev.txt requirements-build.txt Makefile | $(BIN)/python
	$(call PART,tools,$(PIP) -r requirements-dev.txt)
	$(BIN)/python tools/link_source.py
	touch $@

$(VENV)/.ready: $(VENV)/.tools
	$(call PART,torch,$(PIP) torch==2.13.0)
	touch $@

# What only the tests of these frameworks need; everything else works without.
$(VENV)/.frameworks: requirements-frameworks.txt $(VENV)/.ready
	$(call PART,frameworks,$(PIP) -r requirements-frameworks.txt)
	$(PIP) --no-deps tf_keras  # asks for tensorflow, which is tensorflow-cpu here
	touch $@

# What builds the wheels, 150 MB; without the tools of the development environment.
$(VENV)/.wheels: requirements-wheels.txt requirements-build.txt | $(BIN)/python
	$(PIP) -r requirements-wheels.txt
	touch $@

dev: $(VENV)/.ready

frameworks: $(VENV)/.frameworks

# A launcher that cannot be installed is no failure here: its tests tell why they are skipped.
launchers: $(VENV)/.tools
	$(call PART,launchers,python tools/launcher_envs.py)

# Installs an ssh server, so only who asks for it gets it; without it the tests over hosts are skipped.
hosts: $(VENV)/.tools
	$(call PART,hosts,python tools/launcher_envs.py --ssh)

build: $(VENV)/.tools
	cmake -S . -B build/release -G Ninja -DCMAKE_BUILD_TYPE=Release -DHVD_TESTS=ON -DHVD_WERROR=ON -DPython3_EXECUTABLE=$(BIN)/python >/dev/null
	$(call PART,build,cmake --build build/release --target horovod horovod_tensorflow horovod_lane -j $(JOBS))
	for library in libhorovod.so libhorovod_tensorflow.so _lane.abi3.so; do \
	  cp build/release/$$library python/horovod/_native/$$library.new && \
	  mv python/horovod/_native/$$library.new python/horovod/_native/$$library || exit 1; \
	done  # moved, not copied: a running job keeps the old one

# A CUDA driver, an NCCL, a profiler, a GPU for TensorFlow, and a malloc that refuses: build/release/libfake_*.so; HIP,
# its compiler and RCCL: build/release/fake_rocm.
fakes: build
	$(call PART,fakes,cmake --build build/release --target fake_cuda fake_nccl fake_hip fake_hiprtc fake_rccl fake_profiler fake_tensorflow_gpu fake_memory -j $(JOBS))

demo: dev build
	python examples/demo.py

# After the fakes: two builds in one folder would disturb each other.
native-test-build: fakes
	$(call PART,native-test-build,$(BESIDE) cmake --build build/release --target hvd_tests -j $(JOBS))

native-test: native-test-build
	build/release/hvd_tests --once-more

# The same with its output in a file: other tests print to the terminal.
native-test-aside: native-test-build
	$(call PART,native-test,timeout --foreground 1800 build/release/hvd_tests --once-more --junit=$(TIMES)/native.xml >build/release/hvd_tests.log 2>&1 || { cat build/release/hvd_tests.log; exit 1; })
	tail -1 build/release/hvd_tests.log

check: dev
	$(call PART,check,mkdir -p build; $(ASIDE) $(MAKE) --no-print-directory checks >build/check.log 2>&1 || { cat build/check.log; exit 1; })

checks: dev
	ruff check python tests tools examples benchmarks deploy
	ruff format --check python tests tools examples benchmarks deploy
	mypy
	mypy tests/typing/public_names.py
	clang-format --dry-run --Werror $$(git ls-files '*.cc' '*.h')
	python tools/check_layers.py
	python tools/check_sizes.py
	python tools/check_clones.py
	python tools/check_wrapping.py
	python tools/check_english.py
	python tools/gen_settings.py --check
	python tools/gen_abi.py --check

# Side by side: installing waits for the network, ranks wait for one another, and compiling uses what is left.
test:
	$(MAKE) --no-print-directory -j4 native-test-aside check test-fast

test-fast: fakes frameworks
	$(call PART,test-fast,$(call PYTEST,not slow,1,fast))

# The slow tests and the rest share the processors: while tests wait, the rest computes. All at once (-j7), because what
# has the lowest priority must not keep a place from the sanitizers, which take longest.
test-all: dev
	native=$$(python tests/shares.py) && $(MAKE) --no-print-directory -j7 test-slow-some $$native tidy-some wheel-test site

test-slow: fakes frameworks launchers
	$(call PART,test-slow,$(call PYTEST,slow and not exhaustive,1,slow))

# CI's share (tests/shares.py): what the last commits have changed, and a quarter of the rest.
test-slow-some: fakes frameworks launchers
	$(call PART,test-slow,$(call PYTEST,slow and not exhaustive,1,slow,--some))

# On a machine with a GPU; with the interpreter and the frameworks that are there (PYTHON=python3), and without tools that
# must be fetched.
test-gpu:
	cmake -S . -B build/release -DCMAKE_BUILD_TYPE=Release -DHVD_TESTS=ON >/dev/null
	cmake --build build/release --target horovod hvd_tests fake_cuda fake_nccl -j $$(nproc)
	cp build/release/libhorovod.so python/horovod/_native/libhorovod.so
	$(PYTHON) tools/test_gpu.py

test-long: fakes frameworks launchers
	$(call PYTEST,slow,0,long)

matrices: fakes frameworks
	HVD_TEST_MATRIX=full python -m pytest -q -m matrix

times:
	python tools/report_times.py $(TIMES)

FAULTS ?= 1000
SEED ?= 1
chaos: dev build
	PYTHONPATH=python:tests python -m chaos.marathon --faults $(FAULTS) --seed $(SEED)

# Files are read several at once, as they are compiled; `make tidy UNITY=OFF` reads each alone, in three times the time.
UNITY ?= ON
TIDY   = cmake -S . -B build/tidy -G Ninja -DHVD_UNITY=$(UNITY) -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DPython3_EXECUTABLE=$(BIN)/python >/dev/null; \
  PYTHONPATH=tests python tools/tidy_sources.py build/tidy $(1) | $(ASIDE) xargs -P $(JOBS) -n 2 clang-tidy -p build/tidy --quiet --checks=-bugprone-suspicious-include --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-deprecated-declarations
tidy: $(VENV)/.tools
	$(call TIDY)

# CI's share (tests/shares.py): what the last commits have changed, and a quarter of the rest.
tidy-some: $(VENV)/.tools
	$(call PART,tidy,$(call TIDY,--some))

# The contract and Keras on older versions of TensorFlow, each in an environment of its own.
test-tensorflows: build
	python tools/suites.py tensorflow-2.13 tensorflow-2.16

test-torchs: build
	python tools/suites.py torch-2.4 torch-2.15

# What builds on PyTorch, in an environment of its own.
test-lightning: build
	python tools/suites.py lightning

test-jaxs: build
	python tools/suites.py jax-0.5 jax-libraries

# In an environment of its own: the last MXNet needs Python 3.11 or older.
test-mxnet: build
	python tools/suites.py mxnet-1.9

# In environments of their own; Java must be there.
test-spark: build
	python tools/suites.py spark-4 spark-3.5

test-ray: build
	python tools/suites.py ray

# The core under the address and undefined-behaviour sanitizers, and under the thread sanitizer; no suppressions. The
# tests wait more than they compute, so the next compilation goes on beside them. The fuzz targets are made of the objects
# of the first.
asan-build: $(VENV)/.tools
	cmake -S . -B build/asan -G Ninja -DCMAKE_BUILD_TYPE=Sanitize -DHVD_TESTS=ON -DHVD_FUZZ=ON -DHVD_SANITIZE=address,undefined >/dev/null
	$(call PART,asan-build,$(BESIDE) cmake --build build/asan --target hvd_tests fuzzers -j $(JOBS))

# Up to GCC 13 the sanitizer takes a thread's variables in a library that is opened at run time, as the fakes are, for
# those of a glibc before 2.25 whenever they lie 16 bytes behind a page, and the search for leaks crashes (google/sanitizers
# issue 1322). With this option it finds them by the linker's allocations.
asan-test: export ASAN_OPTIONS = intercept_tls_get_addr=0
asan-test: export UBSAN_OPTIONS = halt_on_error=1
asan-test: asan-build
	$(call PART,asan-test,timeout --foreground 3600 $(BESIDE) build/asan/hvd_tests --once-more --junit=$(TIMES)/asan.xml >build/asan/hvd_tests.log 2>&1 || { cat build/asan/hvd_tests.log; exit 1; })
	$(call PART,asan-test-hip,HVD_TEST_PLATFORM=hip timeout --foreground 1800 $(BESIDE) build/asan/hvd_tests --once-more --junit=$(TIMES)/asan-hip.xml $(ROCM_TESTS) >build/asan/hvd_tests_hip.log 2>&1 || { cat build/asan/hvd_tests_hip.log; exit 1; })
	tail -qn1 build/asan/hvd_tests.log build/asan/hvd_tests_hip.log

# Without the tests of what has one thread (CMakeLists.txt). After the other build where both are wanted: one uses all
# processors.
tsan-build: $(VENV)/.tools $(if $(filter asan-test,$(MAKECMDGOALS)),asan-build)
	cmake -S . -B build/tsan -G Ninja -DCMAKE_BUILD_TYPE=Sanitize -DHVD_TESTS=ON -DHVD_SANITIZE=thread >/dev/null
	$(call PART,tsan-build,$(BESIDE) cmake --build build/tsan --target hvd_tests -j $(JOBS))

tsan-test: export TSAN_OPTIONS = halt_on_error=1
tsan-test: tsan-build
	$(call PART,tsan-test,timeout --foreground 3600 $(BESIDE) build/tsan/hvd_tests --once-more --junit=$(TIMES)/tsan.xml >build/tsan/hvd_tests.log 2>&1 || { cat build/tsan/hvd_tests.log; exit 1; })
	tail -1 build/tsan/hvd_tests.log

FUZZ_SECONDS ?= 300
fuzz: asan-build
	python tools/run_fuzzers.py --seconds $(FUZZ_SECONDS)

fuzz-some: asan-build frameworks
	$(call PART,fuzz,$(ASIDE) python tools/run_fuzzers.py --seconds 5)

native-test-aarch64: $(VENV)/.wheels $(VENV)/.tools
	python tools/test_aarch64.py

# The documentation with search and the API reference, into build/site/html; needs no network once this is installed.
SITE := build/site-env
$(SITE)/.ready: requirements-site.txt
	$(PYTHON) -m venv $(SITE)
	$(SITE)/bin/pip install --quiet --disable-pip-version-check -r requirements-site.txt
	touch $@

site: $(SITE)/.ready
	$(call PART,site,mkdir -p build; $(ASIDE) $(SITE)/bin/python tools/build_site.py >build/site.log 2>&1 || { cat build/site.log; exit 1; })
	tail -1 build/site.log

screenshots: dev build site
	python tools/screenshots/take.py

wheel: $(VENV)/.wheels
	python tools/build_wheels.py

wheel-test: $(VENV)/.wheels $(VENV)/.frameworks
	$(call PART,wheel-test,$(BESIDE) python tools/test_wheel.py)

bench: dev build
	python benchmarks/run_all.py --minutes 5

bench-full: dev build
	python benchmarks/run_all.py

bench-page: dev
	python benchmarks/results_page.py

docs: dev
	python tools/gen_settings.py
	python tools/gen_abi.py

count: $(BIN)/python
	python tools/count_lines.py

clean:
	rm -rf build python/horovod/_native/*.so python/horovod/_native/*.so.new
