#!/bin/sh
# Runs every test. As root on Debian it first installs what they need; elsewhere
# it says what is left out. With CI set, leaving anything out is a failure.
set -eu
cd "$(dirname "$0")/.."

if [ "$(id -u)" = 0 ] && [ -f /etc/debian_version ]; then
	tests/setup.sh
elif [ -n "${CI:-}" ]; then
	echo "test: CI needs root on Debian, for the Slurm cluster" >&2
	exit 1
else
	echo "test: not root on Debian: left out are the Slurm cluster, network namespaces and PyTorch beside ours"
fi

# The environment of a Slurm job or an MPI program must not leak into the tests;
# OpenBLAS's own settings would change PyTorch's results and speed.
for v in $(env | sed -n 's/^\(SLURM_[A-Z_]*\|SBATCH_[A-Z_]*\|OPENBLAS_[A-Z0-9_]*\|DDPBATCH_[A-Z_]*\)=.*/\1/p'); do
	unset "$v"
done
export OMP_NUM_THREADS=1

tests/lint.sh
make build
echo "test: alone, since its probes give the kernel less than a second"
go test -count=1 ./netif/probe
parts="cluster packages fuzz"
if command -v gcc >/dev/null; then
	parts="$parts cuda"
else
	echo "test: no gcc: left out is what the tag cuda adds"
fi
echo "test: $parts, three at a time"
# shellcheck disable=SC2086 # the list is meant to be split
make --keep-going --jobs=3 --file=tests/parts.mk $parts
echo "test: all parts ran"
