package screen_test

import (
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs/watch/screen"
)

// TestWidthAndClip checks the width of texts with colors and wide characters, and the
// positions at which they are cut.
func TestWidthAndClip(t *testing.T) {
	for text, want := range map[string]int{"": 0, "abc": 3, "\x1b[32m##\x1b[0m": 2, "━━": 2, "\x1b[": 0} {
		if got := screen.Width(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	for _, tt := range []struct {
		text  string
		width int
		want  string
		cut   string
		short string
	}{
		{"abc", 2, "ab", "ab", "ab"}, {"abc", 9, "abc", "abc", "abc"}, {"━é", 5, "━é", "━é", "━é"}, {"日本", 5, "??", "??", "日本"},
		{"abcdefghij", 8, "abcdefgh", "abcde...", "abc...ij"}, {"日bcdefghij", 8, "?bcdefgh", "?bcde...", "日b...ij"},
		{"日本語日本語", 8, "??????", "??????", "日...語"}, {"日本語", 3, "???", "???", "日"},
	} {
		if got := screen.Clip(tt.text, tt.width); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.text, got, tt.want)
		}
		if got := screen.Cut(tt.text, tt.width); got != tt.cut {
			t.Errorf("%q cut: %q, want %q", tt.text, got, tt.cut)
		}
		if got := screen.Shorten(tt.text, tt.width); got != tt.short {
			t.Errorf("%q shortened: %q, want %q", tt.text, got, tt.short)
		}
	}
}

// TestWrap checks that lines break at words, with an indentation.
func TestWrap(t *testing.T) {
	for _, tt := range []struct {
		text          string
		width, indent int
		want          string
	}{
		{"", 10, 2, ""},
		{"one two three", 0, 2, "one two three"},
		{"one  two", 8, 2, "one  two"}, // fits, so it stays unchanged
		{"one two three four", 9, 2, "one two\n  three\n  four"},
		{"phase   failed: rank 1", 15, 8, "phase   failed:\n        rank 1"},
		{"  it means: this", 13, 4, "  it means:\n    this"},
		{"see /a/path/that/is/long now", 10, 2, "see\n  /a/path/that/is/long\n  now"},
		{"try `a b`, or `c d e` now", 12, 0, "try `a b`,\nor `c d e`\nnow"},
		{"say `a command that is longer` now", 10, 0, "say `a\ncommand\nthat is\nlonger`\nnow"},
		{"an odd ` stays", 6, 0, "an odd\n`\nstays"},
		{"日本語 日本", 9, 1, "日本語\n 日本"},
		{"too narrow", 1, 4, "too\n    narrow"},
	} {
		if got := strings.Join(screen.Wrap(tt.text, tt.width, tt.indent), "\n"); got != tt.want {
			t.Errorf("%q, %d columns: got\n%s\nwant\n%s", tt.text, tt.width, got, tt.want)
		}
	}
}

// TestWrapManyWords checks that a text with many words after a backquote, as in a file of another
// user, needs time and memory in proportion to its length.
func TestWrapManyWords(t *testing.T) {
	text := "`" + strings.Repeat(" a", 20_000)
	allocated := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			screen.Wrap(text, 80, 0)
			screen.Table{Header: []string{"RUN", "NOTE"}, Rows: [][]string{{"a", text}}}.Wrapped(80)
		}
	}).AllocedBytesPerOp()
	if allocated > 400*int64(len(text)) {
		t.Errorf("wrapping %d bytes allocates %d bytes", len(text), allocated)
	}
}
