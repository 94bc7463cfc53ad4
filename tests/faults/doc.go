// Package faults holds the fault matrix: what happens to a run when something fails,
// within which time, with which exit code and message. Each row is a test by itself, of
// the real program with real processes, or names the test elsewhere that shows it;
// docs/faults.md is written from them. Its soak test lets one training suffer a random
// schedule of faults and compares the weights with those of an undisturbed one.
//
// It does not hold tests on a cluster; those stand in tests and are named by their rows.
package faults

//go:generate go test -run TestPage -update .
