//go:build !linux

package sched

// Yield does nothing, because processes do not share memory on this system.
func Yield() {}

// Core returns [Nowhere].
func Core() int { return Nowhere }

// Idle returns nil.
func Idle() []int64 { return nil }

// Move returns false.
func Move(int) bool { return false }
