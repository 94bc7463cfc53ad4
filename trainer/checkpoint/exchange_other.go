//go:build !linux

package checkpoint

import (
	"errors"
	"os"
)

func exchange(root *os.Root, a, b string) error { return errors.ErrUnsupported }
