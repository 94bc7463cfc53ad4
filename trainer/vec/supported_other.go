//go:build !amd64

package vec

// supported reports whether the CPU supports the instructions.
func (s instructions) supported() bool { return s == portable }
