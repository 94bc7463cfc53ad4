package gemm

import "golang.org/x/sys/cpu"

// available returns the kernels that this processor and its operating system can
// run, the fastest first.
func available() []*kernel {
	var list []*kernel
	if cpu.X86.HasAVX512F && cpu.X86.HasFMA {
		list = append(list, &avx512)
	}
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		list = append(list, &avx2)
	}
	return append(list, &portable)
}

var avx512 = kernel{
	name: "avx512",
	rows: 14, cols: 32, lanes: 16,
	tiles:    avx512Tiles,
	copyRows: avx512CopyRows, transpose: avx512Transpose, peak: avx512Peak,
	masked: true,
}

var avx2 = kernel{
	name: "avx2",
	rows: 6, cols: 16, lanes: 8,
	tiles:    avx2Tiles,
	copyRows: avx2CopyRows, transpose: avx2Transpose, peak: avx2Peak,
}

var portable = kernel{name: "portable"}
