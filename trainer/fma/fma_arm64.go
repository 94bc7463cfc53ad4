package fma

// Float32 returns a*b+c, rounded to float32 once. The language allows compilers to fuse this
// expression but does not require it. The arm64 compiler does (FMADDS); otherwise TestRoundsOnce
// would fail.
func Float32(a, b, c float32) float32 { return a*b + c }
