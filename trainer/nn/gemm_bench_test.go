package nn

import (
	"fmt"
	"testing"
)

// BenchmarkGEMM reports the speed of the three products of a linear layer, for
// the shapes of usual layers at usual batches (batch, out, in).
func BenchmarkGEMM(b *testing.B) {
	for _, s := range [][3]int{{32, 128, 784}, {128, 128, 784}, {128, 512, 784}, {128, 512, 512}, {32, 10, 128}, {32, 1, 20}} {
		batch, out, in := s[0], s[1], s[2]
		x, w, bias := fill(batch*in, 1), fill(out*in, 2), fill(out, 3)
		dy, panels := fill(batch*out, 4), make([]float32, 2*max(batch, out))
		y, dx, dyT, dw := make([]float32, batch*out), make([]float32, batch*in), make([]float32, batch*out), make([]float32, out*in)
		for _, product := range []struct {
			name string
			run  func()
		}{
			{"forward", func() { multiplyNT(y, x, w, bias, batch, out, in) }},
			{"weight-gradient", func() {
				transpose(dyT, dy, batch, out)
				multiplyNN(dw, dyT, x, panels, out, in, batch)
			}},
			{"input-gradient", func() { multiplyNN(dx, dy, w, panels, batch, in, out) }},
		} {
			b.Run(fmt.Sprintf("%s/%dx%dx%d", product.name, batch, out, in), func(b *testing.B) {
				for range b.N {
					product.run()
				}
				b.ReportMetric(2*float64(batch*out*in)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
			})
		}
	}
}
