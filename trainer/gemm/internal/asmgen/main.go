// Command asmgen writes the assembly of package gemm: avx512_amd64.s, bf16_amd64.s, avx2_amd64.s,
// and their declarations in tiles_amd64.go, in the working directory. It is run by go generate. Its
// test fails if the files in the package are not up to date.
//
// A kernel holds a tile of C in registers. For each term k it multiplies up to two registers of B,
// which hold columns, by one element of A per row. There is a kernel for each tile height, so that
// no row is computed twice. One call computes several tiles, because a call takes as long as a few
// terms of a tile. Every 16 terms it prefetches a few cache lines for the following tiles.
// Prefetching them all between two tiles would cost more than it gains.
//
// Block sizes and the choice of kernels are Go code in package gemm.
package main

import (
	"fmt"
	"os"
)

func main() {
	for name, text := range files() {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "asmgen:", err)
			os.Exit(1)
		}
	}
}

// files returns the contents of all files by name.
func files() map[string]string {
	return map[string]string{
		"avx512_amd64.s": avx512().assembly(),
		"bf16_amd64.s":   bf16().assembly(),
		"avx2_amd64.s":   avx2().assembly(),
		"tiles_amd64.go": declarations(avx512(), bf16(), avx2()),
	}
}
