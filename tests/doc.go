// Package tests holds the tests that need the whole program: the house's own
// rules, jobs on a real Slurm cluster, and PyTorch beside ours.
//
// It promises that with CI set nothing is left out in silence. It does not hold
// unit tests; those stand beside what they test.
package tests
