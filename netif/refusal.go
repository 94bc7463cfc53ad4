package netif

import (
	"fmt"
	"strings"
)

// enumerate joins words with commas and "and". It prints at most limit words and counts the
// rest, so that messages about large jobs stay short.
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
	fewWords  = 3  // within a sentence
	manyWords = 12 // if the list is the main information
)
