//go:build cuda

package blaslt_test

import (
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/blaslt"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/library"
)

// TestAnotherLibrary checks that New rejects a library that is not cuBLASLt. The conformance suite
// in package engine tests matrix multiplications.
func TestAnotherLibrary(t *testing.T) {
	l, err := library.Open([]string{"libc.so.6"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := blaslt.New(l); err == nil || !strings.Contains(err.Error(), "is not a cuBLASLt library: it has no cublasLtCreate") {
		t.Error(err)
	}
}

// TestStatus checks the text of known and unknown status codes.
func TestStatus(t *testing.T) {
	for s, want := range map[blaslt.Status]string{15: "CUBLAS_STATUS_NOT_SUPPORTED", 99: "cublasStatus_t 99"} {
		if s.Error() != want {
			t.Errorf("%d is %q, want %q", int(s), s.Error(), want)
		}
	}
}
