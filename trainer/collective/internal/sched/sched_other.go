//go:build !linux

package sched

// Yield does nothing, because processes do not share memory on this system.
func Yield() {}

// Core returns [NoCore].
func Core() int { return NoCore }

// Idle returns nil.
func Idle() []int64 { return nil }

// Move returns false.
func Move(int) bool { return false }
