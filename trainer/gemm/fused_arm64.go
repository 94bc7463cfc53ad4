package gemm

// fused is the fused multiply-add a*b+c. The language allows this expression to
// be fused and does not demand it; the compiler for arm64 does it (FMADDS), and
// TestFusedRoundsOnce would fail if it ever ceased to.
func fused(a, b, c float32) float32 { return a*b + c }
