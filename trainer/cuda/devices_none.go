//go:build !cuda

package cuda

// Devices returns [ErrNotBuilt].
func Devices() ([]Device, error) { return nil, ErrNotBuilt }
