package capped_test

import (
	"io"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/capped"
)

// TestBuffer checks that a buffer stores the first bytes and accepts all.
func TestBuffer(t *testing.T) {
	b := capped.Buffer{Limit: 5}
	for _, text := range []string{"abc", "defg", "h"} {
		if n, err := io.Copy(&b, strings.NewReader(text)); int(n) != len(text) || err != nil {
			t.Errorf("write %q: got %d, %v", text, n, err)
		}
	}
	if b.String() != "abcde" || string(b.Bytes()) != "abcde" {
		t.Errorf("got %q, want %q", b.String(), "abcde")
	}
}
