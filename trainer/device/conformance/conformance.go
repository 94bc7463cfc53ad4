// Package conformance holds implementations of [device.Device] to one reference:
// every operation, in plain float64, written for being read and not for speed.
//
// It promises that a device which passes computes what package device says, within
// the rounding of float32 (see real); reads nothing but its operands and writes
// nothing but its results, which lie in memory filled with NaN that must stay as it
// is; gives the same bits each time; and allocates nothing in a step. It uses the
// interface alone, so that a device may be anywhere. It does not measure speed.
package conformance

import (
	"math/rand/v2"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// Run runs the suite. Each group of operations opens a device of its own.
func Run(t *testing.T, open func() device.Device) {
	for _, g := range []struct {
		name  string
		check func(*suite)
	}{
		{"Memory", checkMemory},
		{"Dense", checkDense},
		{"Elementwise", checkElementwise},
		{"Dropout", checkDropout},
		{"Normalisation", checkNormalisation},
		{"Embedding", checkEmbedding},
		{"Attention", checkAttention},
		{"AttentionDropout", checkAttentionDropout},
		{"Convolution", checkConvolution},
		{"Pool", checkPool},
		{"Losses", checkLosses},
		{"Updates", checkUpdates},
		{"Misfits", checkMisfits},
		{"Stored", checkStored},
		{"Repeat", checkRepeat},
	} {
		t.Run(g.name, func(t *testing.T) {
			g.check(&suite{T: t, d: open(), r: source()})
		})
	}
}

// suite is one test: a device, and what the test has put on it.
type suite struct {
	*testing.T
	d    device.Device
	r    *rand.Rand
	held []held
	// stored is the type of what operations store, and aligned has tensors begin where a
	// device likes it best; else they begin anywhere.
	stored  device.Type
	aligned bool
}

// source is where the numbers of a test come from, always the same ones.
func source() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// run runs a subtest, and then looks at the memory around all that it used.
func (s *suite) run(name string, check func(*suite)) {
	s.Helper()
	s.Run(name, func(t *testing.T) {
		sub := &suite{T: t, d: s.d, r: source(), stored: s.stored, aligned: s.aligned}
		check(sub)
		sub.untouched()
	})
}
