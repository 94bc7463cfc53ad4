package vec

import "golang.org/x/sys/cpu"

// supported reports whether this processor and its operating system can run them.
func (s instructions) supported() bool {
	switch s {
	case avx512:
		return cpu.X86.HasAVX512F && cpu.X86.HasBMI2
	case avx2:
		return cpu.X86.HasAVX2
	}
	return true
}
