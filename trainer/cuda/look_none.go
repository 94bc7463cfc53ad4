//go:build !cuda

package cuda

// Look returns [ErrNotBuilt].
func Look() (Found, error) { return Found{}, ErrNotBuilt }
