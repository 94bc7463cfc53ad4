package element

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/vec"
)

// An Op combines the elements of several ranks.
type Op uint8

// NCCL supports the same reductions.
const (
	Sum Op = iota + 1
	Mean
	Max
	Min
	Product
)

// Ops returns all reductions.
func Ops() []Op { return []Op{Sum, Mean, Max, Min, Product} }

var opNames = [...]string{"", "sum", "mean", "max", "min", "product"}

// Valid reports whether o is one of [Ops].
func (o Op) Valid() bool { return o >= Sum && o <= Product }

// String returns the name of the reduction for messages.
func (o Op) String() string {
	if !o.Valid() {
		return fmt.Sprintf("Op(%d)", uint8(o))
	}
	return opNames[o]
}

// kernels are the fastest for this CPU. All give the same bits.
var kernels = vec.New()

// Combine computes dst = a op b. For Mean, it computes the sum, which [Op.Finish] divides. dst may
// be a or b. All buffers hold elements of t and have the same length.
func (o Op) Combine(t Type, dst, a, b []byte) {
	if len(a) != len(dst) || len(b) != len(dst) {
		panic(fmt.Sprintf("element: buffers of %d, %d and %d bytes", len(dst), len(a), len(b)))
	}
	if len(dst) == 0 {
		return
	}
	switch t {
	case Float32:
		if o == Sum || o == Mean {
			kernels.Add(View[float32](dst), View[float32](a), View[float32](b))
			return
		}
		combine[float32](o, dst, a, b)
	case Float64:
		combine[float64](o, dst, a, b)
	case BFloat16:
		combineHalves(o, dst, a, b, widenBF16, roundBF16)
	case Float16:
		combineHalves(o, dst, a, b, widenF16, roundF16)
	case Int8:
		combine[int8](o, dst, a, b)
	case Uint8:
		combine[uint8](o, dst, a, b)
	case Int32:
		combine[int32](o, dst, a, b)
	case Uint32:
		combine[uint32](o, dst, a, b)
	case Int64:
		combine[int64](o, dst, a, b)
	case Uint64:
		combine[uint64](o, dst, a, b)
	default:
		panic("element: unsupported type " + t.String())
	}
}

type arithmetic interface {
	float32 | float64 | int8 | uint8 | int32 | uint32 | int64 | uint64
}

func combine[T interface {
	arithmetic
	Number
}](o Op, dst, a, b []byte) {
	d, x, y := View[T](dst), View[T](a), View[T](b)
	apply(o, d, x[:len(d)], y[:len(d)])
}

func apply[T arithmetic](o Op, d, x, y []T) {
	switch o {
	case Sum, Mean:
		for i := range d {
			d[i] = x[i] + y[i]
		}
	case Max:
		for i := range d {
			d[i] = max(x[i], y[i])
		}
	case Min:
		for i := range d {
			d[i] = min(x[i], y[i])
		}
	case Product:
		for i := range d {
			d[i] = x[i] * y[i]
		}
	default:
		panic("element: no reduction called " + o.String())
	}
}

// Finish turns the sum of n ranks into their mean for Mean. It does nothing for other reductions.
func (o Op) Finish(t Type, b []byte, n int) {
	if o != Mean || len(b) == 0 || n == 1 {
		return
	}
	switch t {
	case Float32:
		v := View[float32](b)
		kernels.Scale(v, v, 1/float32(n))
	case Float64:
		for i, v := 0, View[float64](b); i < len(v); i++ {
			v[i] *= 1 / float64(n)
		}
	case BFloat16:
		scaleHalves(b, n, widenBF16, roundBF16)
	case Float16:
		scaleHalves(b, n, widenF16, roundF16)
	case Int8:
		// The divisor may not fit the type.
		for i, v := 0, View[int8](b); i < len(v); i++ {
			v[i] = int8(int(v[i]) / n)
		}
	case Uint8:
		for i, v := 0, View[uint8](b); i < len(v); i++ {
			v[i] = uint8(int(v[i]) / n)
		}
	case Int32:
		divide[int32](b, n)
	case Uint32:
		divide[uint32](b, n)
	case Int64:
		divide[int64](b, n)
	case Uint64:
		divide[uint64](b, n)
	default:
		panic("element: unsupported type " + t.String())
	}
}

func divide[T int32 | uint32 | int64 | uint64](b []byte, n int) {
	for i, v := 0, View[T](b); i < len(v); i++ {
		v[i] /= T(n)
	}
}
