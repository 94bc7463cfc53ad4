# ddpbatch: make build, make demo, make test. See CONTRIBUTING.md.
export GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
# Only code with the build tag cuda uses cgo, through trainer/cuda/cgo.sh.
export CGO_ENABLED = 0
# An empty build ID, because Go's build ID depends on the directory of the C code. The same source
# then gives the same bytes.
NAMED = -buildid= -X main.linkVersion=$(VERSION)
# A position-independent executable with full RELRO: the kernel loads it at a random address, and
# its function tables are read-only after start. Go's linker has -bindnow; GCC's needs FULL_RELRO.
# The static program has a fixed address, because Go's linker would require a loader otherwise.
PIE = -buildmode=pie
FULL_RELRO = -Wl,-z,relro,-z,now
BIN = bin
# Stub libraries with symbol versions of older glibc, so that the program runs there; see
# trainer/cuda/glibc.sh.
GLIBC = $(BIN)/glibc

.PHONY: build build-cpu build-static install release release-check kernels reference demo test lint bench microbench soak gpu-kit fuzz clean

# Build with GPU support. This needs gcc but no CUDA toolkit. The program starts without a driver.
build:
	trainer/cuda/glibc.sh $(GLIBC)
	trainer/cuda/cgo.sh $(GO) build -trimpath $(PIE) -ldflags '$(NAMED) -extldflags "$(GLIBC)/libdl.so $(GLIBC)/libpthread.so $(FULL_RELRO)"' -o $(BIN)/ddpbatch ./cmd/ddpbatch

# Build without GPU support and without a C compiler. The program is linked to glibc, of any
# version, because it loads the site's MPI library.
build-cpu:
	$(GO) build -trimpath $(PIE) -ldflags '$(NAMED) -bindnow' -o $(BIN)/ddpbatch ./cmd/ddpbatch

# Build without GPU support, static: the program runs on any Linux, including musl, and loads no MPI
# library.
build-static:
	$(GO) build -trimpath -tags static -ldflags '$(NAMED)' -o $(BIN)/ddpbatch ./cmd/ddpbatch

# Install the program that was built, manual pages, completion, the job-file schema, and examples.
PREFIX  ?= /usr/local
DESTDIR ?=
install:
	@test -x $(BIN)/ddpbatch || { echo "make install: $(BIN)/ddpbatch does not exist; run make build first" >&2; exit 1; }
	install -d '$(DESTDIR)$(PREFIX)/bin'
	install -m 755 $(BIN)/ddpbatch '$(DESTDIR)$(PREFIX)/bin/ddpbatch'
	cmd/ddpbatch/install.sh $(BIN)/ddpbatch '$(DESTDIR)$(PREFIX)' "$$(date -u -r $(BIN)/ddpbatch +%F)"

# Build archives for amd64 and arm64, and SHA256SUMS; cmd/ddpbatch/release.sh lists the contents.
DIST ?= dist
release:
	GO='$(GO)' cmd/ddpbatch/release.sh $(DIST) '$(VERSION)'

# Build a release of the last commit twice, in two directories, and compare.
release-check:
	tests/release.sh

# Train a small model on two local ranks. A second call resumes it or reports that it has finished.
demo: build
	bin/ddpbatch launch jobs/examples/demo.toml -n 2
	bin/ddpbatch checkpoint verify runs/demo

# Run all tests. As root on Debian, this installs the requirements and starts a real Slurm cluster.
# Otherwise it prints the parts that it skips.
test:
	tests/test.sh

lint:
	tests/lint.sh

# Compile the GPU kernels to PTX with clang-19.
kernels:
	$(GO) generate ./trainer/cuda/kernels

# Generate docs/reference from the code.
reference:
	$(GO) generate ./cmd/ddpbatch

# Benchmark the trainer against PyTorch, in turns, and write docs/bench.md: as root on Debian, against
# PyTorch 2.6 with its compiler on Debian 13, otherwise against the PyTorch of this machine.
bench: build
	if [ "$$(id -u)" = 0 ] && command -v mmdebstrap >/dev/null; then \
		tests/debian13.sh --compiler env -C .. $(GO) run ./tests/peers -program bin/ddpbatch $(BENCHFLAGS); \
	else \
		$(GO) run ./tests/peers -program bin/ddpbatch $(BENCHFLAGS); \
	fi

# Run the microbenchmarks of the hot paths.
microbench:
	$(GO) test -run '^$$' -bench . ./trainer/... ./slurm ./netif ./jobs

# Train on this machine and then on a cluster with many injected faults. The final weights must equal
# those of undisturbed runs.
FAULTS ?= 200
SEED   ?= 1
soak:
	$(GO) test -count=1 -timeout 60m -v -run TestSoak ./tests/faults -faults $(FAULTS) -seed $(SEED)
	$(GO) test -count=1 -timeout 120m -v -run TestSoak ./tests -faults $(FAULTS) -seed $(SEED)

# Build the archive for checks and benchmarks on a GPU machine; see docs/gpu-development.md.
gpu-kit:
	GO='$(GO)' tests/gpukit/build.sh $(DIST)/ddpbatch-gpu-kit.tar.gz

# Fuzz each parser for FUZZTIME.
FUZZTIME ?= 5m
fuzz:
	tests/fuzz.sh $(FUZZTIME) $(FUZZTIME)

clean:
	rm -rf bin runs
	$(GO) clean -testcache
