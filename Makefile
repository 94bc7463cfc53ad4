# ddpbatch: make build, make demo, make test. CONTRIBUTING.md says more.
GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
# Only what is built with the tag cuda has C in it, by trainer/cuda/cgo.sh.
export CGO_ENABLED = 0
# Go's build id would tell in which folder the C part was built; without it, the same source
# gives the same bytes.
NAMED = -buildid= -X main.linkVersion=$(VERSION)
# A position-independent program whose tables of functions are read-only after the start: the
# kernel loads it at a random address. Go's own linker has -bindnow; GCC's needs FULL_RELRO.
# The static program stays at a fixed address, because with Go's linker it would need a loader.
PIE = -buildmode=pie
FULL_RELRO = -Wl,-z,relro,-z,now
BIN = bin
# Names of older versions of glibc, so that the program runs with them; see trainer/cuda/glibc.sh.
GLIBC = $(BIN)/glibc

.PHONY: build build-cpu build-static install release release-check kernels reference demo test lint bench microbench soak fuzz clean

# With GPU support: it needs gcc, no CUDA toolkit, and starts where there is no driver.
build:
	trainer/cuda/glibc.sh $(GLIBC)
	trainer/cuda/cgo.sh $(GO) build -trimpath $(PIE) -ldflags '$(NAMED) -extldflags "$(GLIBC)/libdl.so $(GLIBC)/libpthread.so $(FULL_RELRO)"' -o $(BIN)/ddpbatch ./cmd/ddpbatch

# Without GPU support, and without a C compiler. It is linked to glibc all the same, of any
# version, since it loads the site's MPI library.
build-cpu:
	$(GO) build -trimpath $(PIE) -ldflags '$(NAMED) -bindnow' -o $(BIN)/ddpbatch ./cmd/ddpbatch

# As build-cpu, linked to nothing: it runs on any Linux, musl included, and loads no MPI library.
build-static:
	$(GO) build -trimpath -tags static -ldflags '$(NAMED)' -o $(BIN)/ddpbatch ./cmd/ddpbatch

# What was built, with manual pages, completion and the schema of the job file.
PREFIX  ?= /usr/local
DESTDIR ?=
install:
	@test -x $(BIN)/ddpbatch || { echo "make install: there is no $(BIN)/ddpbatch: make build first" >&2; exit 1; }
	install -d '$(DESTDIR)$(PREFIX)/bin'
	install -m 755 $(BIN)/ddpbatch '$(DESTDIR)$(PREFIX)/bin/ddpbatch'
	cmd/ddpbatch/install.sh $(BIN)/ddpbatch '$(DESTDIR)$(PREFIX)' "$$(date -u -r $(BIN)/ddpbatch +%F)"

# Archives for amd64 and arm64 and SHA256SUMS; cmd/ddpbatch/release.sh says what is in them.
DIST ?= dist
release:
	GO='$(GO)' cmd/ddpbatch/release.sh $(DIST) '$(VERSION)'

# Builds a release of the last commit twice, in two folders, and compares.
release-check:
	tests/release.sh

# Trains a small model on two local ranks; again, and it goes on or is done.
demo: build
	bin/ddpbatch launch jobs/examples/demo.toml -n 2
	bin/ddpbatch checkpoint verify runs/demo

# Everything. As root on Debian this installs what it needs and starts a real
# Slurm cluster; elsewhere it says which parts it leaves out.
test:
	tests/test.sh

lint:
	tests/lint.sh

# The GPU kernels' PTX from their sources, by clang-19.
kernels:
	$(GO) generate ./trainer/cuda/kernels

# docs/reference from the code.
reference:
	$(GO) generate ./cmd/ddpbatch

# The trainer beside PyTorch on this machine, in turns; writes docs/bench.md.
bench: build
	$(GO) run ./tests/peers -program bin/ddpbatch

# How fast the hot paths are, each by itself.
microbench:
	$(GO) test -run '^$$' -bench . ./trainer/... ./slurm ./netif ./jobs

# A training on this machine, then one on a cluster, that suffer many faults and must end with the
# weights of undisturbed ones.
FAULTS ?= 200
SEED   ?= 1
soak:
	$(GO) test -count=1 -timeout 60m -v -run TestSoak ./tests/faults -faults $(FAULTS) -seed $(SEED)
	$(GO) test -count=1 -timeout 120m -v -run TestSoak ./tests -faults $(FAULTS) -seed $(SEED)

# Each parser under random input, for FUZZTIME each.
FUZZTIME ?= 5m
fuzz:
	tests/fuzz.sh $(FUZZTIME) $(FUZZTIME)

clean:
	rm -rf bin runs
	$(GO) clean -testcache
