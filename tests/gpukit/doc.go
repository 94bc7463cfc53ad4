// Package gpukit holds the kit for checks and benchmarks on a GPU machine. `make gpu-kit` builds the
// archive: the program, the tests of package engine, and run.py, which runs them in three parts. The
// Go code only tests the kit, with programs that stand for those in the archive: without a GPU, the
// results of a real run cannot be tested.
package gpukit
