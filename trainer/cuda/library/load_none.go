//go:build static

package library

import "errors"

// load always fails: libraries depend on a libc, and a static program does not have one.
func load(string) (uintptr, error) {
	return 0, errors.New("this program is statically linked and cannot load libraries")
}

func symbol(uintptr, string) (uintptr, bool) { return 0, false }

func callSize(uintptr) uintptr { panic("library: nothing is loaded") }

func callInto(uintptr, *int32) int32 { panic("library: nothing is loaded") }
