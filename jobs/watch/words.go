package watch

import (
	"strings"
	"unicode"
)

// clean leaves out what could steer the terminal, and makes one line of a text.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || unicode.IsSpace(r) {
			return r
		}
		return -1
	}, s)
	return strings.Join(strings.Fields(s), " ")
}
