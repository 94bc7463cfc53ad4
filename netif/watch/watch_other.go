//go:build !linux

package watch

import (
	"context"
	"errors"
	"runtime"
)

// Watcher watches one interface.
type Watcher struct{}

// Watch needs Linux: it fails on every other system.
func Watch(context.Context, string, func(Event)) (*Watcher, error) {
	return nil, errors.New("watching a network interface: only Linux is supported, this is " + runtime.GOOS)
}

// Wait waits for nothing where nothing can be watched.
func (*Watcher) Wait() error { return nil }
