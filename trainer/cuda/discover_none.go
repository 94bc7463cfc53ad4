//go:build !cuda

package cuda

// Discover returns [ErrNotBuilt].
func Discover() (Found, error) { return Found{}, ErrNotBuilt }
