//go:build !linux

package cpu

// useHugePages does nothing here.
func useHugePages([]byte) {}
