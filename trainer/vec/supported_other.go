//go:build !amd64

package vec

// supported reports whether this processor can run them.
func (s instructions) supported() bool { return s == portable }
