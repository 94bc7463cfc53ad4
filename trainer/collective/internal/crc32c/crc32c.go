// Package crc32c is the CRC-32 by Castagnoli's polynomial (RFC 3720) of the standard
// library, at the speed at which memory is read on processors that multiply polynomials
// 512 bits at a time (AVX-512 with VPCLMULQDQ).
//
// It promises the same numbers as hash/crc32 everywhere. It does not do other
// polynomials.
package crc32c

import "hash/crc32"

var table = crc32.MakeTable(crc32.Castagnoli)

// block is the bytes that are folded at a time.
const block = 256

// Update adds p to the checksum of what came before; that of nothing is 0.
func Update(sum uint32, p []byte) uint32 {
	if n := len(p) / block * block; wide && n > block {
		// Folding (Gopal et al., Intel, 2009) leaves a block with the same remainder as
		// all that was folded into it.
		var rest [block]byte
		fold(&rest, &p[0], n, ^sum)
		sum = crc32.Update(^uint32(0), table, rest[:])
		p = p[n:]
	}
	return crc32.Update(sum, table, p)
}
