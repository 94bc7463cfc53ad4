package crc32c

import "golang.org/x/sys/cpu"

// wide reports whether this processor and its operating system can fold.
var wide = cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VPCLMULQDQ

// fold puts into rest a block of the same remainder as the n bytes at p, whole blocks,
// have after state.
//
//go:noescape
func fold(rest *[block]byte, p *byte, n int, state uint32)
