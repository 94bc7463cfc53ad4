// Command asmgen writes the assembly of package gemm: avx512_amd64.s,
// bf16_amd64.s, avx2_amd64.s and their declarations in tiles_amd64.go, in the working
// directory. It is run by go generate; its test fails if the files in the package
// are not those that it writes.
//
// A kernel holds a tile of C in registers, and for each term k multiplies up to
// two registers of B, which hold columns, by one element of A for each row. There
// is a kernel for each height of a tile, so that no row is computed twice. One call
// computes several tiles, since a call takes as long as some terms of a tile. Every 16
// terms it fetches a few lines of what comes next: fetched all at once, between two
// tiles, they would cost more than they gain.
//
// It does not choose sizes of blocks or kernels: that is Go code.
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
