package conformance

import "github.com/ddpbatch/ddpbatch/trainer/device"

// With these sizes, each operation uses more than one thread.
const (
	many       = 1<<20 + 13 // elements
	rows, cols = 1031, 257  // of a matrix
)

type (
	tensors = []device.Tensor
	step    = func()
)

// operations returns all operations of package device that compute something.
func operations() []operation {
	return append(append(matrixOperations(), elementOperations()...), plannedOperations()...)
}

// matrixOperations returns operations on matrices of rows x cols.
func matrixOperations() []operation {
	x := func(s *suite) device.Matrix { return s.inputMatrix(s.normal(rows*cols), rows, cols, whole) }
	y := func(s *suite) device.Matrix { return s.resultMatrix(s.normal(rows*cols), rows, cols, whole) }
	product := func(name string, m, n, k int, precision device.Precision) operation {
		return operation{name, func(s *suite) (step, tensors) {
			p := device.Product{
				C: s.emptyMatrix(m, n), A: s.inputMatrix(s.normal(m*k), m, k, transposed), B: s.inputMatrix(s.normal(n*k), k, n, whole),
				Bias: s.input(s.normal(n)), Activation: device.GELU, Pre: s.emptyMatrix(m, n), Precision: precision,
			}
			grad := device.Product{C: s.resultMatrix(s.normal(m*n), m, n, whole), A: p.A, B: p.B, ColumnSum: s.result(s.normal(n)), Accumulate: true, Precision: precision}
			return func() { s.d.MatMul(p); s.d.MatMul(grad) }, tensors{p.C.Data, p.Pre.Data, grad.C.Data, grad.ColumnSum}
		}}
	}
	return []operation{
		product("MatMul", 601, 512, 130, device.FP32),
		product("MatMulBF16", 601, 512, 130, device.BF16),
		product("MatMulFlat", 3, 5003, 1027, device.FP32),
		product("MatMulDeep", 40, 33, 30011, device.FP32),
		{"ColumnSum", func(s *suite) (step, tensors) {
			x, dst := x(s), s.result(s.normal(cols))
			return func() { s.d.ColumnSum(dst, x, true) }, tensors{dst}
		}},
		{"LayerNorm", func(s *suite) (step, tensors) {
			x, y, w, b := x(s), y(s), s.input(s.normal(cols)), s.input(s.normal(cols))
			mean, rstd := s.empty(rows), s.empty(rows)
			dw, db, dx := s.empty(cols), s.empty(cols), y
			return func() {
				s.d.LayerNorm(y, mean, rstd, x, w, b)
				s.d.LayerNormBackward(device.LayerNormGradients{DX: dx, DW: dw, DB: db, DY: y, X: x, W: w, Mean: mean, RStd: rstd})
			}, tensors{y.Data, mean, rstd, dw, db}
		}},
		{"Embed", func(s *suite) (step, tensors) {
			tokens := s.tokens(s.upTo(rows, 100)) // each token ten times
			table, positions := s.inputMatrix(s.normal(100*cols), 100, cols, whole), s.inputMatrix(s.normal(rows*cols), rows, cols, whole)
			dtable, dpositions := s.resultMatrix(make([]float32, 100*cols), 100, cols, whole), y(s)
			y := y(s)
			return func() {
				s.d.Embed(y, tokens, table, positions, 64, 0)
				s.d.EmbedGrad(dtable, dpositions, y, tokens, 64)
			}, tensors{y.Data, dtable.Data, dpositions.Data}
		}},
		{"CrossEntropy", func(s *suite) (step, tensors) {
			x, labels, losses := y(s), s.tokens(s.upTo(rows, cols)), s.empty(rows)
			return func() { s.d.CrossEntropy(losses, x, labels, 0.5) }, tensors{losses, x.Data}
		}},
		{"SquaredError", func(s *suite) (step, tensors) {
			x, targets, losses := y(s), s.input(s.normal(rows*cols)), s.empty(rows)
			return func() { s.d.SquaredError(losses, x, targets, 0.5) }, tensors{losses, x.Data}
		}},
		{"ArgMax", func(s *suite) (step, tensors) {
			x, chosen := x(s), s.emptyInts(rows)
			return func() { s.d.ArgMax(chosen, x) }, tensors{chosen}
		}},
	}
}

// elementOperations returns operations on many elements.
func elementOperations() []operation {
	x := func(s *suite) device.Tensor { return s.input(s.normal(many)) }
	y := func(s *suite) device.Tensor { return s.result(s.normal(many)) }
	return []operation{
		{"Memory", func(s *suite) (step, tensors) {
			x, y, z, host := x(s), y(s), y(s), make([]float32, many)
			return func() { s.d.Copy(y, x); s.d.Zero(z); s.d.Read(host, y); s.d.Write(z, host) }, tensors{y, z}
		}},
		{"Add", func(s *suite) (step, tensors) {
			x, y := x(s), y(s)
			return func() { s.d.Add(y, y, x) }, tensors{y}
		}},
		{"Activate", func(s *suite) (step, tensors) {
			var all tensors
			for range activations {
				all = append(all, y(s), y(s))
			}
			x, dy := x(s), x(s)
			return func() {
				for i, f := range activations {
					s.d.Activate(f, all[2*i], x)
					s.d.ActivateGrad(f, all[2*i+1], dy, x, all[2*i])
				}
			}, all
		}},
		{"Dropout", func(s *suite) (step, tensors) {
			const perSample = many / 3
			x, y := x(s).Slice(0, 3*perSample), y(s).Slice(0, 3*perSample)
			d := device.Dropout{P: 0.1, Key: 3, First: 1, Stride: 4, PerSample: perSample}
			return func() { s.d.Dropout(y, x, d) }, tensors{y}
		}},
		{"Cast", func(s *suite) (step, tensors) {
			x, y, narrow := x(s), y(s), s.d.Alloc(device.BFloat16, many)
			return func() { s.d.Cast(narrow, x); s.d.Cast(y, narrow) }, tensors{y}
		}},
		{"Reductions", func(s *suite) (step, tensors) {
			x, a, b, y := x(s), s.tokens(s.upTo(many, 2)), s.tokens(s.upTo(many, 2)), s.empty(3)
			host := make([]float32, 3)
			return func() {
				// The float64 in three parts, without loss.
				total := s.d.SumSquares(x)
				host[0] = float32(total)
				host[1] = float32(total - float64(host[0]))
				host[2] = float32(s.d.CountEqual(a, b))
				s.d.Write(y, host)
			}, tensors{y}
		}},
		{"Updates", func(s *suite) (step, tensors) {
			g, w, m, v, buffer := x(s), y(s), s.result(make([]float32, many)), s.result(make([]float32, many)), s.empty(many)
			adam := device.Factors{GradScale: 0.9, Beta1: 0.9, Beta2: 0.99, New1: 0.1, New2: 0.01, Keep: 0.99, Decay: 0.01, Correction: 0.1, Eps: 1e-8, Rate: -0.01}
			sgd := device.Factors{GradScale: 0.9, Rate: -0.1, Beta1: 0.9, Decay: 0.1, Nesterov: true, First: true}
			return func() {
				s.d.Update(device.RuleAdam, arrays(w, g, m, v), adam)
				s.d.Update(device.RuleSGD, arrays(w, g, buffer), sgd)
				s.d.Scale(w, w, 0.3)
			}, tensors{w, m, v, buffer}
		}},
	}
}
