// Package faults contains the fault matrix: the result of each fault for a run, with the time
// limit, the exit code, and the message. Each row is a test of the real program with real
// processes, or names a test elsewhere that covers it. docs/faults.md is generated from the rows. A
// soak test injects a random schedule of faults into one run and compares its weights with
// those of an undisturbed run.
//
// Tests on a cluster are in package tests. The rows name them.
package faults

//go:generate go test -run TestPage -update .
