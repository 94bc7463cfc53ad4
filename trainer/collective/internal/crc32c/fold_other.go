//go:build !amd64

package crc32c

const wide = false

func fold(*[block]byte, *byte, int, uint32) { panic("crc32c: folding is not supported on this CPU") }
