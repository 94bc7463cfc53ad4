// Package lazyregexp compiles regular expressions when they are first used. Compiling all
// expressions of the program at its start takes longer than a short command such as
// "ddpbatch check".
package lazyregexp

import (
	"regexp"
	"sync"
)

// New returns a function that compiles expr in its first call and returns the same result in
// all calls. It is safe for concurrent use, and panics if expr is invalid.
func New(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
