// Package crc32c computes CRC-32C checksums (Castagnoli polynomial, RFC 3720), at memory bandwidth
// on CPUs with AVX-512 and VPCLMULQDQ.
//
// The results are equal to those of hash/crc32 on every CPU. Other polynomials are not supported.
package crc32c

import "hash/crc32"

var table = crc32.MakeTable(crc32.Castagnoli)

// block is the number of bytes that are folded at a time.
const block = 256

// Update returns the checksum sum extended by p. The checksum of no data is 0.
func Update(sum uint32, p []byte) uint32 {
	if n := len(p) / block * block; wide && n > block {
		// Folding (Gopal et al., Intel, 2009) leaves a block with the same remainder as all data
		// that was folded into it.
		var rest [block]byte
		fold(&rest, &p[0], n, ^sum)
		sum = crc32.Update(^uint32(0), table, rest[:])
		p = p[n:]
	}
	return crc32.Update(sum, table, p)
}
