//go:build cuda

package engine

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/blaslt"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
)

// TestLocateFailure checks that an error names the operation before it exactly if that operation
// may have caused the error, also if cuBLASLt hides the driver's error.
func TestLocateFailure(t *testing.T) {
	const execution, notSupported = 13, 15
	failed := func(code driver.Code) error { return &driver.Error{Op: "cuLaunchKernel", Code: code} }
	multiplied := func(status blaslt.Status) error { return fmt.Errorf("cublasLtMatmul: %w", status) }
	for _, c := range []struct {
		name   string
		err    error
		stream error // of the query
		late   bool
		hint   bool
	}{
		{name: "out of memory", err: failed(driver.OutOfMemory), hint: true},
		{name: "invalid value", err: failed(1)},
		{name: "illegal address", err: failed(700), late: true, hint: true},
		{name: "timeout", err: failed(702), late: true, hint: true},
		{name: "assertion", err: failed(710), late: true, hint: true},
		{name: "hardware stack", err: failed(714), late: true, hint: true},
		{name: "illegal instruction", err: failed(715), late: true, hint: true},
		{name: "misaligned address", err: failed(716), late: true, hint: true},
		{name: "invalid address space", err: failed(717), late: true, hint: true},
		{name: "invalid program counter", err: failed(718), late: true, hint: true},
		{name: "launch failed", err: failed(719), late: true, hint: true},
		{name: "memory error", err: failed(214), late: true, hint: true},
		{name: "NVLink error", err: failed(220), late: true, hint: true},
		{name: "unknown", err: failed(999), late: true, hint: true},
		{name: "launch refused", err: failed(701)},
		{name: "cuBLASLt after a failed kernel", err: multiplied(execution), stream: failed(716), late: true, hint: true},
		{name: "cuBLASLt fails itself", err: multiplied(execution)},
		{name: "cuBLASLt during a capture", err: multiplied(notSupported), stream: failed(900)},
	} {
		t.Run(c.name, func(t *testing.T) {
			last, before := operation{name: "read", shape: [4]int{12}, n: 1}, operation{name: "add", shape: [4]int{7}, n: 1}
			what, err := locateFailure(c.err, last, before, func() error { return c.stream })
			want := "read of 12"
			if c.late {
				want = "detected in read of 12, after add of 7"
			}
			if what != want {
				t.Errorf("got %q, want %q", what, want)
			}
			if !errors.Is(err, c.err) || c.late && c.stream != nil && !errors.Is(err, c.stream) {
				t.Errorf("got error %v", err)
			}
			if hint := hints.Of(err); (hint != "") != c.hint {
				t.Errorf("got hint %q", hint)
			}
		})
	}
}
