//go:build !linux

package watch

import (
	"context"
	"errors"
	"runtime"
)

// A Watcher watches one interface.
type Watcher struct{}

// Watch requires Linux and returns an error on other systems.
func Watch(context.Context, string, func(Event)) (*Watcher, error) {
	return nil, errors.New("watch network interface: not supported on " + runtime.GOOS)
}

// Wait returns nil immediately.
func (*Watcher) Wait() error { return nil }
