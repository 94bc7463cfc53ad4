//go:build !linux

package sched

import "time"

// Yield does nothing, because processes do not share memory on this system.
func Yield() {}

// Core returns [NoCore].
func Core() int { return NoCore }

// Idle returns nil.
func Idle() []int64 { return nil }

// CPUTime returns 0.
func CPUTime() time.Duration { return 0 }

// Move returns false.
func Move(int) bool { return false }
