package gemm

import "golang.org/x/sys/cpu"

// available returns the kernels that the CPU and the operating system support, fastest first.
func available() []kernels {
	var list []kernels
	if cpu.X86.HasAVX512F && cpu.X86.HasFMA {
		if cpu.X86.HasAVX512BW && cpu.X86.HasAVX512BF16 {
			list = append(list, kernels{"avx512_bf16", &avx512, &bf16})
		}
		list = append(list, kernels{"avx512", &avx512, &avx512})
	}
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		list = append(list, kernels{"avx2", &avx2, &avx2})
	}
	return append(list, kernels{"portable", &portable, &portable})
}

var avx512 = kernel{
	rows: 14, cols: 32, lanes: 16, pair: 1,
	tiles:    avx512Tiles,
	copyRows: avx512CopyRows, transpose: avx512Transpose, peak: avx512Peak,
	masked: true,
}

var bf16 = kernel{
	rows: 14, cols: 32, lanes: 16, pair: 2,
	tiles:    bf16Tiles,
	copyRows: bf16CopyRows, transpose: bf16Transpose, convert: bf16Convert, peak: bf16Peak,
	masked: true,
}

var avx2 = kernel{
	rows: 6, cols: 16, lanes: 8, pair: 1,
	tiles:    avx2Tiles,
	copyRows: avx2CopyRows, transpose: avx2Transpose, peak: avx2Peak,
}

var portable = kernel{pair: 1}
