package engine_test

import (
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/gpusim"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/engine"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// TestParseFusion checks the values of DDPBATCH_FUSION.
func TestParseFusion(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       engine.Fusion
		fails      bool
	}{
		{name: "unset", want: engine.AllFusions},
		{name: "all", text: "all", want: engine.AllFusions},
		{name: "none", text: "none"},
		{name: "one", text: "bias", want: engine.FuseBias},
		{name: "two", text: "bias,gelu_grad", want: engine.FuseBias | engine.FuseGELUGrad},
		{name: "gradient of biases", text: "bias_grad", want: engine.FuseBiasGrad},
		{name: "unknown", text: "bias,relu", fails: true},
		{name: "empty element", text: "bias,", fails: true},
		{name: "all in a list", text: "all,bias", fails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := engine.ParseFusion(c.text)
			if got != c.want || (err != nil) != c.fails || err != nil && !strings.Contains(err.Error(), `"gelu_grad"`) {
				t.Errorf("got %b, %v; want %b, error: %t", got, err, c.want, c.fails)
			}
		})
	}
}

// TestFusionOfBiasGradients checks when cuBLASLt computes the gradient of a bias: only in bf16, if
// the gradient is not added to a previous one, and if cuBLASLt supports it.
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
