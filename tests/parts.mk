# The parts of tests/test.sh that run in parallel. Make starts them, because a shell's & would make
# them, and the programs that the tests interrupt, ignore SIGINT.
.PHONY: cluster packages fuzz cuda debian13

# Do not pass the settings of this make to a make that a test runs.
unexport MAKEFLAGS MFLAGS MAKELEVEL

# The complete program on test Slurm clusters. These tests mostly wait, so three run in parallel.
cluster:
	go test -count=1 -timeout 80m -parallel 3 ./tests

# One package at a time, because CI has two cores. tests/test.sh runs netif/probe.
packages:
	go test -count=1 -timeout 60m -p 1 $$(go list ./... | grep -v -e '/tests$$' -e '/netif/probe$$')

# With low priority, in the CPU time that the other parts leave.
fuzz:
	GOMAXPROCS=1 nice tests/fuzz.sh 60s 1s

# Code with the build tag cuda.
cuda:
	trainer/cuda/cgo.sh go test -count=1 -timeout 60m -p 1 ./trainer/cuda/... ./nccl/... ./tests/gpusim/...
	trainer/cuda/cgo.sh go test -count=1 -timeout 30m -run 'TestScripts/(device|doctor)$$' ./cmd/ddpbatch

# On Debian 13, with Slurm 24.11 and PyTorch 2.6, the tests that debian13_tests lists.
debian13:
	tests/debian13.sh go test -count=1 -timeout 60m -parallel 3 -run "^($$(paste -sd '|' tests/debian13_tests))$$" .
