package vec

// Add computes y = a + b.
func (u *Unit) Add(y, a, b []float32) {
	same(len(y), len(a), len(b))
	u.add(y, a, b)
}

// Scale computes y = s*x.
func (u *Unit) Scale(y, x []float32, s float32) {
	same(len(y), len(x))
	u.scale(y, x, s)
}

// ReLU computes y = max(x, 0) like torch.nn.functional.relu. NaN remains NaN.
func (u *Unit) ReLU(y, x []float32) {
	same(len(y), len(x))
	u.relu(y, x)
}

// ReLUGrad computes dx = 0 if y = ReLU(x) is 0, and dx = dy otherwise. y may be x instead.
func (u *Unit) ReLUGrad(dx, dy, y []float32) {
	same(len(dx), len(dy), len(y))
	u.reluGrad(dx, dy, y)
}

// Tanh computes y = tanh(x) with an error of at most 1.5 ulps.
func (u *Unit) Tanh(y, x []float32) {
	same(len(y), len(x))
	u.tanh(y, x)
}

// TanhGrad computes dx = dy * (1 - y*y), where y = Tanh(x).
func (u *Unit) TanhGrad(dx, dy, y []float32) {
	same(len(dx), len(dy), len(y))
	u.tanhGrad(dx, dy, y)
}

// GELU computes y = x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))) like torch.nn.functional.gelu
// with approximate="tanh", the activation of GPT-2. As in PyTorch, -Inf becomes NaN.
func (u *Unit) GELU(y, x []float32) {
	same(len(y), len(x))
	u.gelu(y, x)
}

// GELUGrad computes dx = dy times the derivative of GELU at x. The derivative is 0 or 1 if x is
// infinite.
func (u *Unit) GELUGrad(dx, dy, x []float32) {
	same(len(dx), len(dy), len(x))
	u.geluGrad(dx, dy, x)
}

// RoundBF16 rounds to bfloat16, to nearest even, like Tensor.bfloat16(). NaN becomes 0x7fc0.
func (u *Unit) RoundBF16(dst []uint16, src []float32) {
	same(len(dst), len(src))
	u.roundBF16(dst, src)
}

// WidenBF16 converts bfloat16 to float32, which is exact.
func (u *Unit) WidenBF16(dst []float32, src []uint16) {
	same(len(dst), len(src))
	u.widenBF16(dst, src)
}
