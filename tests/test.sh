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
echo "test: go test ./..."
# One package at a time where the cluster runs: two cores are few.
go test -count=1 -timeout 30m -p 1 ./...
if command -v gcc >/dev/null; then
	echo "test: with the tag cuda"
	trainer/cuda/cgo.sh go test -count=1 -timeout 10m ./trainer/cuda/... ./nccl/... ./tests/gpusim/...
	trainer/cuda/cgo.sh go test -count=1 -timeout 10m -run 'TestScripts/(device|doctor)$' ./cmd/ddpbatch
else
	echo "test: no gcc: left out is what the tag cuda adds"
fi
echo "test: all parts ran"
