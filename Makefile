# ddpbatch: make build, make demo, make test. CONTRIBUTING.md says more.
GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
# The program needs no C: one static binary runs on every node.
export CGO_ENABLED = 0

.PHONY: build kernels demo test lint bench microbench fuzz clean

build:
	$(GO) build -trimpath -ldflags '-X main.linkVersion=$(VERSION)' -o bin/ddpbatch ./cmd/ddpbatch

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

# The trainer beside PyTorch on this machine, in turns; writes docs/bench.md.
bench: build
	$(GO) run ./tests/peers -program bin/ddpbatch

# How fast the hot paths are, each by itself.
microbench:
	$(GO) test -run '^$$' -bench . ./trainer/... ./slurm ./netif ./jobs

# Each parser under random input, for FUZZTIME each.
FUZZTIME ?= 30s
fuzz:
	tests/fuzz.sh $(FUZZTIME)

clean:
	rm -rf bin runs
	$(GO) clean -testcache
