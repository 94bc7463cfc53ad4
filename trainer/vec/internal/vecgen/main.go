// Command vecgen writes the kernels of package vec to the working directory: avx512_amd64.s,
// avx2_amd64.s, and their declarations, the same kernels in Go in portable.go, and the dispatch
// between them. It is run by go generate. Its test fails if the files in the package are not up to
// date.
//
// A kernel is described once, in the files kernels_*.go, as the operations on one element; see
// [body]. All targets give the same bits, because each rounds every operation separately. A kernel
// processes contiguous elements only. Rows, strides, and threads are handled in Go code.
package main

import (
	"fmt"
	"os"
)

func main() {
	for name, text := range files() {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "vecgen:", err)
			os.Exit(1)
		}
	}
}

// files returns the contents of all files by name.
func files() map[string]string {
	list := kernels()
	return map[string]string{
		"avx512_amd64.s":   assembly(avx512, list),
		"avx2_amd64.s":     assembly(avx2, list),
		"kernels_amd64.go": declarations(list) + dispatch(list, true),
		"kernels_other.go": dispatch(list, false),
		"portable.go":      portable(list),
	}
}
