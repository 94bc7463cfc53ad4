package netif

import (
	"fmt"
	"strings"
)

// enumerate joins words as a sentence does, and counts those beyond the limit:
// a message about a thousand hosts must stay a message.
func enumerate(words []string, limit int) string {
	switch n := len(words); {
	case n == 0:
		return ""
	case n == 1:
		return words[0]
	case n > limit:
		return fmt.Sprintf("%s and %d more", strings.Join(words[:limit], ", "), n-limit)
	default:
		return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
}

const (
	fewWords  = 3  // in the middle of a sentence
	manyWords = 12 // where the list is what the reader needs
)
