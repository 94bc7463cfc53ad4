package vec

import "golang.org/x/sys/cpu"

// supported reports whether the CPU and the operating system support the instructions.
func (s instructions) supported() bool {
	switch s {
	case avx512:
		return cpu.X86.HasAVX512F && cpu.X86.HasBMI2
	case avx2:
		return cpu.X86.HasAVX2
	}
	return true
}
