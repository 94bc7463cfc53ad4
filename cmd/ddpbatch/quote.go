package main

import (
	"fmt"
	"strings"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// quoted quotes user data in a message.
func quoted(s string) string { return fmt.Sprintf("%q", s) }

// listed joins words with commas for a message.
func listed(words []string) string { return strings.Join(words, ", ") }

// shellQuote quotes a word for a POSIX shell.
func shellQuote(word string) string { return jobs.ShellQuote(word) }
