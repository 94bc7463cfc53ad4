package fma

// Float32 returns a*b+c, rounded to float32 once. The language allows this
// expression to be fused and does not demand it; the compiler for arm64 does it
// (FMADDS), and TestRoundsOnce would fail if it ever ceased to.
func Float32(a, b, c float32) float32 { return a*b + c }
