# The verbs of this project. `make demo` and `make test` do everything themselves, on a machine with Python 3.11, g++ and make.
#
#   demo      trains a small CNN on real data with 1 and 2 ranks and checks what it claims
#   test      build, C++ tests, checks, Python tests that finish in a few minutes
#   test-all  clang-tidy, every C++ test under the sanitizers, every fuzz target for some seconds, the wheel,
#             and the long suites of TensorFlow and Keras
#   fuzz      every parser of bytes, FUZZ_SECONDS each
#   test-long the suites marked slow: launchers (torchrun, MPI, Slurm), more ranks, long stress, the fault matrix
#   test-tensorflows  the contract suite and Keras on the oldest TensorFlow that is supported and the first with Keras 3
#   check     linters, types, architecture checks
#   bench     benchmarks against the peers that are installed
#   docs      regenerates docs/settings.md
#   build     libhorovod.so into the source tree
#   dev       the virtual environment
#   frameworks  TensorFlow, Keras and JAX in it, for their tests
#   clean     removes what the others made

PYTHON ?= python3
VENV   := $(CURDIR)/.venv
BIN    := $(VENV)/bin
JOBS   ?= $(shell nproc)
export PATH := $(BIN):$(PATH)
export PYTHONDONTWRITEBYTECODE := 1

.PHONY: demo test test-all test-long check bench docs build dev clean tidy native-test native-sanitizers fuzz wheel-test frameworks test-tensorflows test-frameworks

$(VENV)/.ready: requirements-dev.txt Makefile
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	$(BIN)/python tools/link_source.py
	touch $@

# What only the tests of these frameworks need; everything else works without.
$(VENV)/.frameworks: requirements-frameworks.txt $(VENV)/.ready
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-frameworks.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps tf_keras  # asks for tensorflow, which is tensorflow-cpu here
	touch $@

dev: $(VENV)/.ready

frameworks: $(VENV)/.frameworks

build: dev
	cmake -S . -B build/release -G Ninja -DCMAKE_BUILD_TYPE=Release -DHVD_TESTS=ON -DHVD_WERROR=ON -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >/dev/null
	cmake --build build/release --target horovod horovod_tensorflow -j $(JOBS)
	for library in libhorovod.so libhorovod_tensorflow.so; do \
	  cp build/release/$$library horovod/_native/$$library.new && \
	  mv horovod/_native/$$library.new horovod/_native/$$library || exit 1; \
	done  # moved, not copied: a running job keeps the old one

demo: build
	python examples/demo.py

native-test: build
	cmake --build build/release --target hvd_tests -j $(JOBS)
	build/release/hvd_tests

check: dev
	ruff check horovod tests tools examples benchmarks
	ruff format --check horovod tests tools examples benchmarks
	mypy
	mypy tests/typing/public_names.py
	clang-format --dry-run --Werror $$(git ls-files '*.cc' '*.h')
	python tools/check_layers.py
	python tools/check_sizes.py
	python tools/check_clones.py
	python tools/check_abi.py
	python tools/gen_settings.py --check

test: native-test frameworks check
	python -m pytest -q -m "not slow"

test-all: tidy native-sanitizers wheel-test test-frameworks
	$(MAKE) fuzz FUZZ_SECONDS=10

# What `test` leaves out of TensorFlow and Keras: more ranks, more modes, the other backends, servers that die.
test-frameworks: build frameworks
	python -m pytest -q -m slow tests/contract/test_contract_tensorflow.py tests/integration/tensorflow tests/integration/keras tests/scripts

tidy: build
	find src -name '*.cc' | grep -v -e neon -e shim | xargs -P $(JOBS) -n 4 clang-tidy -p build/release --quiet --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-deprecated-declarations

test-long: build frameworks
	python tools/launcher_envs.py
	python -m pytest -q -m slow

# The contract and Keras on older versions of TensorFlow, each in an environment of its own.
test-tensorflows: build
	python tools/tensorflow_envs.py

# The core under the address and undefined-behaviour sanitizers, then under the thread sanitizer; no suppressions.
native-sanitizers: dev
	cmake -S . -B build/asan -G Ninja -DCMAKE_BUILD_TYPE=Sanitize -DHVD_TESTS=ON -DHVD_SANITIZE=address,undefined >/dev/null
	cmake --build build/asan --target hvd_tests -j $(JOBS)
	UBSAN_OPTIONS=halt_on_error=1 build/asan/hvd_tests
	cmake -S . -B build/tsan -G Ninja -DCMAKE_BUILD_TYPE=Sanitize -DHVD_TESTS=ON -DHVD_SANITIZE=thread >/dev/null
	cmake --build build/tsan --target hvd_tests -j $(JOBS)
	TSAN_OPTIONS=halt_on_error=1 build/tsan/hvd_tests

FUZZ_SECONDS ?= 300
fuzz: dev
	python tools/run_fuzzers.py --seconds $(FUZZ_SECONDS)

wheel-test: dev
	python tools/test_wheel.py

bench: build
	python benchmarks/run_all.py

docs: dev
	python tools/gen_settings.py

clean:
	rm -rf build horovod/_native/libhorovod*.so
