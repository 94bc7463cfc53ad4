//go:build cuda

package engine_test

import (
	"os"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/gpusim"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/engine"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/library"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/device/conformance"
)

func TestMain(m *testing.M) { gpusim.Main(m) }

// open opens a device until the end of a test. As in the program, DDPBATCH_ATTENTION selects the
// instructions of attention, unless the test does; if they are not available, the test fails.
// DDPBATCH_FUSION selects fusions. cuBLASLt is found as in the program.
func open(t testing.TB, o engine.Options) *engine.Device {
	t.Helper()
	if o.Attention == engine.AutoAttention {
		var err error
		if o.Attention, err = engine.ParseAttention(os.Getenv("DDPBATCH_ATTENTION")); err != nil {
			t.Fatal(err)
		}
	}
	fusion, err := engine.ParseFusion(os.Getenv("DDPBATCH_FUSION"))
	if err != nil {
		t.Fatal(err)
	}
	o.Disabled |= engine.AllFusions &^ fusion
	version, err := driver.Load()
	if err != nil {
		t.Fatal(err)
	}
	o.BLAS = library.Find(os.LookupEnv, library.CUBLASLt(int(version)/1000)...)
	gpu, err := driver.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	o.SeparateAllocations = o.SeparateAllocations || gpusim.IsChecked() || os.Getenv("DDPBATCH_TEST_APART") != "" // for compute-sanitizer
	d, err := engine.Open(gpu, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Fallback(); err != nil {
			t.Error(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if err := gpu.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// TestConformance runs the conformance suite of devices on the simulated GPU.
func TestConformance(t *testing.T) {
	conformance.RunFenced(t, func() (device.Device, conformance.Fence) {
		d := open(t, engine.Options{})
		if !gpusim.IsChecked() {
			return d, nil
		}
		first := d.Alloc(device.Float32, 1)
		return d, func(t device.Tensor, forbidden bool) {
			d.Read(make([]float32, 1), first) // waits for all previous operations
			gpusim.Fence(uintptr(t.Base()), t.Len()*t.Type().Size(), forbidden)
		}
	})
}

// TestWithoutEpilogues runs part of the conformance suite with a cuBLASLt that cannot add a bias.
func TestWithoutEpilogues(t *testing.T) {
	gpusim.Require(t)
	out, err := gpusim.Again(t, "TestConformance/(Dense|Stored)", "GPUSIM_EPILOGUES=none")
	if err != nil || !strings.Contains(out, "--- PASS: TestConformance/Dense") || !strings.Contains(out, "--- PASS: TestConformance/Stored") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestEachFusion checks that results are correct if cuBLASLt may apply only some steps, or none.
func TestEachFusion(t *testing.T) {
	gpusim.Require(t)
	for _, fusion := range []string{"none", "bias,gelu_grad", "gelu,bias_grad"} {
		t.Run(fusion, func(t *testing.T) {
			out, err := gpusim.Again(t, "TestConformance/Stored", "DDPBATCH_FUSION="+fusion)
			if err != nil || !strings.Contains(out, "--- PASS: TestConformance/Stored") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// allButRepeat is TestConformance without Repeat, which repeats the other groups. The pattern has no
// list of them, so it includes new ones.
const allButRepeat = "TestConformance/([^R]|R[^e]|Re[^p]).*"

// TestUnderAddressSanitizer checks that operations access only their own memory: tensors, the
// shared memory of a launch, and their own variables.
func TestUnderAddressSanitizer(t *testing.T) {
	for test, passed := range map[string]string{allButRepeat: "TestConformance/Rules", "TestTwoSteps": "TestTwoSteps/gpt_precision_1"} {
		if out, err := gpusim.Checked(t, test); err != nil || !strings.Contains(out, "--- PASS: "+passed) {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// TestFusionOfBiasGradients checks when cuBLASLt computes the gradient of a bias: only in bf16, if
// the gradient is not added to a previous one, and if cuBLASLt supports it and then does not leave a
// part of the GPU idle.
func TestFusionOfBiasGradients(t *testing.T) {
	gpusim.Require(t)
	for _, c := range []struct {
		name, epilogues string
		disabled        engine.Fusion
		dy, c           device.Type
		accumulate      bool
		offset          int // of the gradient of the bias
		fused           bool
	}{
		{name: "bf16", dy: device.BFloat16, fused: true},
		{name: "accumulate", dy: device.BFloat16, accumulate: true},
		{name: "rounded operand", dy: device.Float32},
		{name: "rounded result", dy: device.BFloat16, c: device.BFloat16},
		{name: "unaligned", dy: device.BFloat16, offset: 1},
		{name: "disabled", dy: device.BFloat16, disabled: engine.FuseBiasGrad},
		{name: "other fusions disabled", dy: device.BFloat16, disabled: engine.AllFusions &^ engine.FuseBiasGrad, fused: true},
		{name: "no epilogues", dy: device.BFloat16, epilogues: "none"},
		{name: "half of the GPU", dy: device.BFloat16, epilogues: "half"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("GPUSIM_EPILOGUES", c.epilogues)
			d := open(t, engine.Options{Disabled: c.disabled})
			const rows, in, out = 5, 8, 16
			matrix := func(kind device.Type, rows, cols int) device.Matrix {
				return device.Rows(d.Alloc(kind, rows*cols), rows, cols)
			}
			p := device.Product{
				C: matrix(c.c, in, out), A: matrix(device.BFloat16, rows, in).T(), B: matrix(c.dy, rows, out),
				ColumnSum: d.Alloc(device.Float32, c.offset+out).Slice(c.offset, c.offset+out), Accumulate: c.accumulate, Precision: device.BF16,
			}
			d.Begin()
			for range 4 { // enough for a graph
				d.MatMul(p)
			}
			d.End()
			calls := strings.Join(d.LastPart(), " ")
			if fused := !strings.Contains(calls, "column_sum"); fused != c.fused || !strings.Contains(calls, "matmul") {
				t.Errorf("%s; want fused: %t", calls, c.fused)
			}
		})
	}
}
