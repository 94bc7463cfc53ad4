//go:build !linux

package sched

// Yield is for processes that wait for each other without the kernel, which there are
// none of here.
func Yield() {}

// Core is not known here.
func Core() int { return Nowhere }

// Idle is not known here.
func Idle() []int64 { return nil }

// Move is for threads whose core is known.
func Move(int) bool { return false }
