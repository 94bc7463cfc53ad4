// Package conformance tests implementations of [device.Device] against one reference: every
// operation in plain float64, written for readability and not for speed.
//
// A device that passes the test
//   - computes the results that package device specifies, within the rounding of float32 (see
//     real),
//   - reads only its operands and writes only its results, which are surrounded by NaN,
//   - gives the same bits each time, and
//   - allocates nothing in a step.
//
// The package uses only the interface, so it works for every device. It does not measure speed.
package conformance

import (
	"math/rand/v2"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// A Fence forbids accesses to a tensor, or allows them again, after all previous operations. A device
// with a Fence reports a forbidden access.
type Fence func(t device.Tensor, forbidden bool)

// Run runs the suite. Each group of operations opens a separate device.
func Run(t *testing.T, open func() device.Device) {
	RunFenced(t, func() (device.Device, Fence) { return open(), nil })
}

// RunFenced runs the suite, and forbids accesses to the memory around the tensors of a test. The
// Fence may be nil.
func RunFenced(t *testing.T, open func() (device.Device, Fence)) {
	for _, g := range []struct {
		name  string
		check func(*suite)
	}{
		{"Memory", checkMemory},
		{"Dense", checkDense},
		{"Elementwise", checkElementwise},
		{"Dropout", checkDropout},
		{"Normalization", checkNormalization},
		{"Embedding", checkEmbedding},
		{"Attention", checkAttention},
		{"AttentionDropout", checkAttentionDropout},
		{"Convolution", checkConvolution},
		{"Pool", checkPool},
		{"Losses", checkLosses},
		{"Updates", checkUpdates},
		{"Rules", checkRules},
		{"Steps", checkSteps},
		{"Misfits", checkMisfits},
		{"Stored", checkStored},
		{"Repeat", checkRepeat},
	} {
		t.Run(g.name, func(t *testing.T) {
			d, fence := open()
			g.check(&suite{T: t, d: d, fence: fence, r: source()})
		})
	}
}

// suite is one test with its device and tensors.
type suite struct {
	*testing.T
	d       device.Device
	fence   Fence // nil if the device cannot detect forbidden accesses
	r       *rand.Rand
	guarded []guardedTensor
	// stored is the type of stored tensors. If aligned is set, tensors begin at the device's
	// preferred alignment; otherwise they begin anywhere.
	stored  device.Type
	aligned bool
}

// source returns a random source with a fixed seed.
func source() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// run runs a subtest and then checks the memory around all tensors that it used.
func (s *suite) run(name string, check func(*suite)) {
	s.Helper()
	s.Run(name, func(t *testing.T) {
		sub := &suite{T: t, d: s.d, fence: s.fence, r: source(), stored: s.stored, aligned: s.aligned}
		check(sub)
		sub.untouched()
	})
}
