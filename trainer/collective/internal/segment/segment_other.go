//go:build !linux

package segment

import "errors"

func create(string, int) (*Segment, error) { return nil, errors.ErrUnsupported }

func open(string, int) (*Segment, error) { return nil, errors.ErrUnsupported }

// Unlink does nothing on this system.
func (*Segment) Unlink() error { return nil }

// Unmap does nothing on this system.
func (*Segment) Unmap() error { return nil }

func sweep(string, int) {}
