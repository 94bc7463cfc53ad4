//go:build linux

package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// lease creates files that every user can open and holds write leases on them: another process that
// opens a file waits until the lease is released or lease-break-time is over.
func lease(paths []string) error {
	broken := make(chan os.Signal, len(paths))
	signal.Notify(broken, syscall.SIGIO) // the kernel requests the lease back
	unix.Umask(0)
	for _, path := range paths {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		if err != nil {
			return err
		}
		defer f.Close()
		defer os.Remove(path)
		// Old enough to look like a leftover.
		if err := unix.Utimes(path, make([]unix.Timeval, 2)); err != nil {
			return err
		}
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
			return fmt.Errorf("take a lease on %q: %w", path, err)
		}
	}
	fmt.Println("holds", len(paths), "leases")
	if err := waitForEnd(); err != nil {
		return err
	}
	select {
	case <-broken:
		fmt.Println("somebody opened a leased file")
	default:
		fmt.Println("nobody opened a leased file")
	}
	return nil
}
