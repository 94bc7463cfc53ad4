// Package tests contains the tests that need the whole program: the conventions of the repository,
// jobs on a real Slurm cluster, and comparisons with PyTorch.
//
// Tests on a cluster call newSite (program_test.go), which starts one with package cluster.
// conventions_test.go checks the repository, such as the imports between packages.
// security_*_test.go and twousers_test.go run attacks of other users (package attacker).
//
// If CI is set, no test is skipped silently. Unit tests are in the packages that they test.
package tests
