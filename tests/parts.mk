# The parts of tests/test.sh that run beside each other. Make starts them and not the shell, whose &
# makes them deaf to an interrupt, and with them the programs that the tests interrupt.
.PHONY: cluster packages fuzz cuda

# The settings of this make are not those of a make that a test runs.
unexport MAKEFLAGS MFLAGS MAKELEVEL

# The whole program, on Slurm clusters of the tests' own. They mostly wait: three at once.
cluster:
	go test -count=1 -timeout 60m -parallel 3 ./tests

# One package at a time: two cores are few. tests/test.sh has run netif/probe.
packages:
	go test -count=1 -timeout 60m -p 1 $$(go list ./... | grep -v -e '/tests$$' -e '/netif/probe$$')

# With what the others leave of the cores.
fuzz:
	GOMAXPROCS=1 nice tests/fuzz.sh 60s 1s

# What the tag cuda adds.
cuda:
	trainer/cuda/cgo.sh go test -count=1 -timeout 30m -p 1 ./trainer/cuda/... ./nccl/... ./tests/gpusim/...
	trainer/cuda/cgo.sh go test -count=1 -timeout 30m -run 'TestScripts/(device|doctor)$$' ./cmd/ddpbatch
