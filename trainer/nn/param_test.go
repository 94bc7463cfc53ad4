package nn

import (
	"slices"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// alignedHalves returns n zeros in bfloat16 whose address is the given number of bytes above a multiple
// of 256.
func alignedHalves(d device.Device, n, offset int) device.Tensor {
	const alignment = 256
	t := d.Alloc(device.BFloat16, n+alignment)
	skip := (alignment - int(t.Addr()%alignment) + offset) / device.BFloat16.Size()
	return t.Slice(skip, skip+n)
}

// TestOperand checks that a matmul reads rounded values only if it would round the weight to the same
// layout.
func TestOperand(t *testing.T) {
	for _, c := range []struct {
		name    string
		shape   []int
		offset  int // bytes
		missing bool
		want    device.Type
	}{
		{name: "aligned", shape: []int{2, 8}, want: device.BFloat16},
		{name: "convolution", shape: []int{2, 2, 2, 2}, want: device.BFloat16},
		{name: "not rounded", shape: []int{2, 8}, missing: true},
		{name: "unaligned address", shape: []int{2, 8}, offset: 32},
		{name: "unaligned rows", shape: []int{8, 12}},
		{name: "single output", shape: []int{1, 8}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, p := cpu.New(1), newParam("weight", c.shape...)
			p.Data = d.Alloc(device.Float32, p.Len())
			if !c.missing {
				p.Rounded = alignedHalves(d, p.Len(), c.offset)
			}
			if got := p.operand().Type(); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// TestGeneratorReadsValues checks that a generator reads current values, not rounded copies, which a
// training run updates later.
func TestGeneratorReadsValues(t *testing.T) {
	for _, precision := range []device.Precision{device.FP32, device.BF16} {
		d := cpu.New(1)
		m := newGPT(t, d, spokenGPT)
		want := slices.Clone(m.NewGenerator(d, precision).Feed([]int32{3, 1}))
		for _, p := range m.Params() {
			p.Rounded = alignedHalves(d, p.Len(), 0)
		}
		if got := m.NewGenerator(d, precision).Feed([]int32{3, 1}); !slices.Equal(got, want) {
			t.Errorf("precision %d: logits %v, want %v", precision, got, want)
		}
	}
}
