//go:build !linux

package segment

import "errors"

func create(string, int) (*Segment, error) { return nil, errors.ErrUnsupported }

func open(string, int) (*Segment, error) { return nil, errors.ErrUnsupported }

// Unlink has nothing to remove.
func (*Segment) Unlink() error { return nil }

// Unmap has nothing to give back.
func (*Segment) Unmap() error { return nil }

func sweep() {}
