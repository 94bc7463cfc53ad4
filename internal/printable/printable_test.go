package printable_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/ddpbatch/ddpbatch/internal/printable"
)

// hostile are characters that must not reach a terminal as they are.
func hostile() string {
	var b strings.Builder
	for r := rune(0); r <= unicode.MaxLatin1; r++ {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			b.WriteRune(r)
		}
	}
	b.WriteString("\u00ad\u061c\u200b\u200d\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff\U000e0041")
	b.WriteString("\u034f\u115f\u1160\u17b4\u180b\u2800\u3164\ufe00\uffa0\U000e0100\U000e01ef")
	return b.String()
}

const good = "a b\u00a0\tü日\U0001f600\u26a0\ufe0f\n"

// TestText checks which characters each function keeps, removes, or replaces.
func TestText(t *testing.T) {
	for _, c := range []struct {
		name, text, want string
		f                func(string) string
	}{
		{"Text keeps what is seen", good, good, printable.Text},
		{"Text removes the rest", hostile(), "", printable.Text},
		{"Text replaces invalid UTF-8", "a\x9bb", "a\ufffdb", printable.Text},
		{"Mark keeps what is seen", good, good, printable.Mark},
		{"Mark marks the rest", hostile(), strings.Repeat("\ufffd", utf8.RuneCountInString(hostile())), printable.Mark},
		{"Line joins lines", " a\r\n\tb\u2028c ", "a b c", printable.Line},
		{"Verbatim keeps spaces", "  a  b\n\tc \u2028", "  a  b     c", printable.Verbatim},
		{"Verbatim removes the rest", " a\x1b[2Jb\u009b\u202ec", " a[2Jbc", printable.Verbatim},
		{"Line removes the rest", "a\x1b[2Jb\u009b\u202ec", "a[2Jbc", printable.Line},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.f(c.text); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestJSONIsTheSameValue checks that JSON escapes invisible characters and does not change values.
func TestJSONIsTheSameValue(t *testing.T) {
	for _, s := range []string{"", good, hostile(), "a" + hostile() + "\"\\" + good} {
		text, err := json.MarshalIndent(map[string]string{s: s}, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		safe := printable.JSON(text)
		if string(safe) != printable.Text(string(safe)) {
			t.Errorf("%q holds characters that are not seen", safe)
		}
		var got map[string]string
		if err := json.Unmarshal(safe, &got); err != nil || len(got) != 1 || got[s] != s {
			t.Errorf("got %q (%v), want %q", got, err, s)
		}
	}
}

// FuzzJSON checks that JSON does not change the value of any text.
func FuzzJSON(f *testing.F) {
	f.Add(good)
	f.Add(hostile())
	f.Fuzz(func(t *testing.T, s string) {
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var got, want string
		safe := printable.JSON(text)
		if err := json.Unmarshal(safe, &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &want); err != nil || got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if string(safe) != printable.Text(string(safe)) {
			t.Errorf("%q holds characters that are not seen", safe)
		}
	})
}

// TestShorten checks that a text is cut between characters.
func TestShorten(t *testing.T) {
	for _, tt := range []struct {
		text  string
		limit int
		want  string
	}{
		{"", 0, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "abc ..."},
		{"a\u00e9b", 2, "a ..."}, // é has two bytes
		{"a\u00e9b", 3, "a\u00e9 ..."},
		{"\x80\x80\x80", 2, " ..."}, // no character begins
	} {
		if got := printable.Shorten(tt.text, tt.limit); got != tt.want {
			t.Errorf("Shorten(%q, %d): got %q, want %q", tt.text, tt.limit, got, tt.want)
		}
	}
}
