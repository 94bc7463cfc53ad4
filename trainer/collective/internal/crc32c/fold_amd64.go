package crc32c

import "golang.org/x/sys/cpu"

// wide reports whether the CPU and the operating system support folding.
var wide = cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VPCLMULQDQ

// fold stores in rest a block with the same remainder, after state, as the n bytes at p. n must be
// a multiple of the block size.
//
//go:noescape
func fold(rest *[block]byte, p *byte, n int, state uint32)
