package conformance

import (
	"bytes"
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
)

// value returns element i of rank r: 1, 2, or 3. Sums and products of these over a few ranks are
// exact in every type, or wrap around in the same way.
func value(r, i int) int { return 1 + (r*5+i+i/7)%3 }

// aligned returns memory for n elements of any type.
func aligned(t collective.Type, n int) []byte {
	return element.Bytes(make([]float64, n*t.Size()/8+1))[:n*t.Size()]
}

// numbers returns n elements of rank r, starting at first.
func numbers(t collective.Type, r, first, n int) []byte { return multiples(t, r, first, n, 1) }

// multiples returns such elements, multiplied by times.
func multiples(t collective.Type, r, first, n, times int) []byte {
	b := aligned(t, n)
	for i := range n {
		put(t, b, i, times*value(r, first+i), 1)
	}
	return b
}

// put sets element i to v/divisor, divided like collective.Mean.
func put(t collective.Type, b []byte, i, v, divisor int) {
	single := float32(v) * (1 / float32(divisor))
	switch t {
	case element.Float32:
		element.View[float32](b)[i] = single
	case element.Float64:
		element.View[float64](b)[i] = float64(v) * (1 / float64(divisor))
	case element.BFloat16:
		element.View[element.BF16](b)[i] = element.ToBF16(single)
	case element.Float16:
		element.View[element.F16](b)[i] = element.ToF16(single)
	case element.Int8:
		element.View[int8](b)[i] = int8(v / divisor)
	case element.Uint8:
		b[i] = uint8(v / divisor)
	case element.Int32:
		element.View[int32](b)[i] = int32(v / divisor)
	case element.Uint32:
		element.View[uint32](b)[i] = uint32(v / divisor)
	case element.Int64:
		element.View[int64](b)[i] = int64(v / divisor)
	case element.Uint64:
		element.View[uint64](b)[i] = uint64(v / divisor)
	}
}

// reduced returns the reduction of n elements over the ranks, starting at first.
func reduced(t collective.Type, o collective.Op, ranks, first, n int) []byte {
	b := aligned(t, n)
	for i := range n {
		v, divisor := value(0, first+i), 1
		for r := 1; r < ranks; r++ {
			x := value(r, first+i)
			switch o {
			case collective.Sum, collective.Mean:
				v += x
			case collective.Max:
				v = max(v, x)
			case collective.Min:
				v = min(v, x)
			case collective.Product:
				v *= x
			}
		}
		if o == collective.Mean {
			divisor = ranks
		}
		put(t, b, i, v, divisor)
	}
	return b
}

// same compares buffers and returns an error with the first difference.
func same(what string, got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d bytes, want %d", what, len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("%s: byte %d of %d is %#02x, want %#02x", what, i, len(got), got[i], want[i])
		}
	}
	return nil
}
