package gemm

import (
	"os"
	"regexp"
	"testing"
)

// TestPeakOperations compares the number of operations in a round of each peak function with its
// assembly, and checks that the instructions of a round do not wait for each other.
func TestPeakOperations(t *testing.T) {
	instruction := regexp.MustCompile(`(VFMADD231PS|VDPBF16PS) ([YZ]\d+), ([YZ]\d+), ([YZ]\d+)\n`)
	for name, k := range map[string]*kernel{"avx2": &avx2, "avx512": &avx512, "bf16": &bf16} {
		source, err := os.ReadFile(name + "_amd64.s")
		if err != nil {
			t.Fatal(err)
		}
		loop := regexp.MustCompile(`(?s)TEXT ·` + name + `Peak\(SB\).*?\nloop:\n(.*?)JNZ loop`).FindSubmatch(source)
		if loop == nil {
			t.Fatalf("%s: no loop", name)
		}
		operations := 0
		read, written := map[string]bool{}, map[string]bool{}
		for _, m := range instruction.FindAllStringSubmatch(string(loop[1]), -1) {
			lanes := map[byte]int{'Y': 8, 'Z': 16}[m[4][0]]
			terms := map[string]int{"VFMADD231PS": 1, "VDPBF16PS": 2}[m[1]]
			operations += 2 * terms * lanes
			if written[m[4]] {
				t.Errorf("%s: two instructions write %s", name, m[4])
			}
			written[m[4]] = true
			read[m[2]], read[m[3]] = true, true
		}
		for register := range read {
			if written[register] {
				t.Errorf("%s: an instruction reads %s, which another writes", name, register)
			}
		}
		if got := k.peakOperations(); got != operations || operations == 0 {
			t.Errorf("%s: %d operations in a round, want %d", name, got, operations)
		}
	}
}
