//go:build !linux

package cpu

// useHugePages does nothing on this system.
func useHugePages([]byte) {}
