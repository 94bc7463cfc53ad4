package bench

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// Shape is a matmul C = A·B of an M x K and a K x N matrix. A or B is stored transposed if its
// letter in Layout is T instead of N, as in the names of BLAS. It has 2MNK floating-point
// operations.
type Shape struct {
	Model   string // source of the shape: "square", or the name of one of [Models]
	M, N, K int
	Layout  string // "NN", "NT", or "TN"
}

// String returns MxNxK/LAYOUT, the format that [ParseShape] reads.
func (s Shape) String() string { return fmt.Sprintf("%dx%dx%d/%s", s.M, s.N, s.K, s.Layout) }

// maxSide is the maximum of M, N, and K. It limits the memory of the matrices to 3 GiB.
const maxSide = 1 << 14

var shapePattern = regexp.MustCompile(`^([1-9]\d*)x([1-9]\d*)x([1-9]\d*)(?:/(NN|NT|TN))?$`)

// ParseShape parses MxNxK or MxNxK/LAYOUT. The default layout is NN.
func ParseShape(text string) (Shape, error) {
	m := shapePattern.FindStringSubmatch(text)
	if m == nil {
		return Shape{}, fmt.Errorf("shape %q is not MxNxK or MxNxK/LAYOUT with a layout of NN, NT or TN", text)
	}
	s := Shape{Layout: m[4]}
	if s.Layout == "" {
		s.Layout = "NN"
	}
	for i, side := range []*int{&s.M, &s.N, &s.K} {
		var err error
		if *side, err = strconv.Atoi(m[i+1]); err != nil || *side > maxSide {
			return Shape{}, fmt.Errorf("shape %q has a side above %d", text, maxSide)
		}
	}
	return s, nil
}

// Shapes returns squares of 1024 in each layout, and the matmuls of a step of the MLP and the small
// GPT: for each layer the outputs, the gradient of the weight, and the gradient of the inputs.
func Shapes() []Shape {
	shapes := []Shape{{"square", 1024, 1024, 1024, "NN"}, {"square", 1024, 1024, 1024, "NT"}, {"square", 1024, 1024, 1024, "TN"}}
	for _, m := range Models()[:2] {
		shapes = append(shapes, m.products()...)
	}
	return shapes
}

// products returns the matmuls of layers whose weight is [out, in].
func (m perceptron) products() []Shape {
	var shapes []Shape
	widths := m.widths()
	for i := range len(widths) - 1 {
		in, out := widths[i], widths[i+1]
		shapes = append(shapes, Shape{m.name, m.batch, out, in, "NT"}, Shape{m.name, out, in, m.batch, "TN"})
		if i > 0 {
			shapes = append(shapes, Shape{m.name, m.batch, in, out, "NN"})
		}
	}
	return shapes
}

// products returns the matmuls of a block's layers, whose weight is [in, out], and of the head,
// whose weight is [vocabulary, width].
func (m transformer) products() []Shape {
	var shapes []Shape
	rows, width := m.batch*m.length, m.options.Width
	for _, l := range [][2]int{{width, 3 * width}, {width, width}, {width, 4 * width}, {4 * width, width}} {
		in, out := l[0], l[1]
		shapes = append(shapes, Shape{m.name, rows, out, in, "NN"}, Shape{m.name, in, out, rows, "TN"}, Shape{m.name, rows, in, out, "NT"})
	}
	v := m.options.Vocabulary
	return append(shapes, Shape{m.name, rows, v, width, "NT"}, Shape{m.name, v, width, rows, "TN"}, Shape{m.name, rows, width, v, "NN"})
}

// Gemm measures a matmul for about the given time, and at least three times. The error is the
// context's.
func (b *Bench) Gemm(ctx context.Context, s Shape, p device.Precision, d time.Duration) (Result, error) {
	// A run is long compared with the clock's resolution, and its time is never zero.
	const shortest, tick = 200 * time.Microsecond, 1e-9
	unit := b.newDevice()
	product := s.product(unit, p)
	multiply := func() { unit.MatMul(product) }
	multiply()
	calls := 1 + int(shortest.Seconds()/max(tick, timed(multiply)))
	run := func() {
		for range calls {
			multiply()
		}
	}
	runs := max(3, int(d.Seconds()/max(tick, timed(run))))
	b.measurePeak(p)
	var seconds []float64
	err := repeat(ctx, runs, func() { seconds = append(seconds, timed(run)/float64(calls)) })
	if err != nil {
		return Result{}, err
	}
	b.measurePeak(p)
	return b.rate(Result{Kind: "gemm", Model: s.Model, Shape: s.String()}, unit, p, seconds, 2*float64(s.M)*float64(s.N)*float64(s.K)), nil
}

// product returns a matmul of normally distributed matrices.
func (s Shape) product(d device.Device, p device.Precision) device.Product {
	g := random.New(seed)
	matrix := func(rows, cols int, transposed bool) device.Matrix {
		t := d.Alloc(device.Float32, rows*cols)
		device.Fill(d, t, func(v []float32) { g.Normal(0, 1, v) })
		if transposed {
			return device.Rows(t, cols, rows).T()
		}
		return device.Rows(t, rows, cols)
	}
	a := matrix(s.M, s.K, s.Layout[0] == 'T')
	return device.Product{
		C: device.Rows(d.Alloc(device.Float32, s.M*s.N), s.M, s.N),
		A: a, B: matrix(s.K, s.N, s.Layout[1] == 'T'), Precision: p,
	}
}
