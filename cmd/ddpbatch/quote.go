package main

import (
	"fmt"
	"strings"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// quoted is user data inside a message.
func quoted(s string) string { return fmt.Sprintf("%q", s) }

// listed is a list inside a message.
func listed(words []string) string { return strings.Join(words, ", ") }

// shellQuote writes a word as any POSIX shell reads it.
func shellQuote(word string) string { return jobs.ShellQuote(word) }
