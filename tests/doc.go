// Package tests contains the tests that need the whole program: the conventions of the repository,
// jobs on a real Slurm cluster, and comparisons with PyTorch.
//
// If CI is set, no test is skipped silently. Unit tests are in the packages that they test.
package tests
