#!/bin/sh
# Run all tests. As root on Debian, install their requirements first. Otherwise print the skipped
# parts. With CI set, a skipped part is a failure.
set -eu
cd "$(dirname "$0")/.."

if [ "$(id -u)" = 0 ] && [ -f /etc/debian_version ]; then
	tests/setup.sh
elif [ -n "${CI:-}" ]; then
	echo "test: CI requires root on Debian for the Slurm cluster" >&2
	exit 1
else
	echo "test: not root on Debian: skipping the Slurm cluster, network namespaces, and comparisons with PyTorch"
fi

# The environment of a Slurm job or an MPI program must not leak into the tests. OpenBLAS settings
# would change PyTorch's results and speed.
for v in $(env | sed -n 's/^\(SLURM_[A-Z_]*\|SBATCH_[A-Z_]*\|OPENBLAS_[A-Z0-9_]*\|DDPBATCH_[A-Z_]*\)=.*/\1/p'); do
	unset "$v"
done
export OMP_NUM_THREADS=1
# With the flags of make build, packages are compiled once for the program and the tests. Test
# programs without debug information are linked faster.
export GOFLAGS="${GOFLAGS:+$GOFLAGS }-trimpath -ldflags=-w"

# NVIDIA's files are not free, and a mirror may be unreachable: the tests then skip these checks.
if [ -n "${CI:-}" ]; then
	go run ./tests/nvidia/fetch || echo "test: skipping the checks with NVIDIA's files"
fi

tests/lint.sh
make build
echo "test: netif/probe, without other tests because its probes time out in less than a second"
go test -count=1 ./netif/probe
parts="cluster packages fuzz"
if [ "$(id -u)" = 0 ] && [ -f /etc/debian_version ]; then
	parts="$parts debian13"
fi
if command -v gcc >/dev/null; then
	parts="$parts cuda"
else
	echo "test: gcc not found: skipping code with the build tag cuda"
fi
echo "test: $parts, three in parallel"
# shellcheck disable=SC2086 # splitting is intended
make --keep-going --jobs=3 --file=tests/parts.mk $parts
echo "test: all parts passed"
