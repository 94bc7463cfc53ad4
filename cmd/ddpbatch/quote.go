package main

import (
	"fmt"
	"strings"
)

// quoted is user data inside a message.
func quoted(s string) string { return fmt.Sprintf("%q", s) }

// listed is a list inside a message.
func listed(words []string) string { return strings.Join(words, ", ") }

// shellQuote writes a word as any POSIX shell reads it.
func shellQuote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("%+,-./:=@_", r)
	}
	if word != "" && word[0] != '=' && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
