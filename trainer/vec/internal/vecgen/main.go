// Command vecgen writes the kernels of package vec: avx512_amd64.s, avx2_amd64.s
// and their declarations, the same kernels in Go in portable.go, and the choice
// between them, in the working directory. It is run by go generate; its test fails
// if the files in the package are not those that it writes.
//
// A kernel is described once, in the files kernels_*.go, as the operations on one
// element; see [body]. Since every target rounds each of them alone, all compute
// the same bits. It knows elements one after another in memory and nothing else:
// rows, strides and threads are for Go code.
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
