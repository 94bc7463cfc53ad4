package capped_test

import (
	"encoding/json"
	"io"
	"slices"
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
	if b.String() != "abcde" || string(b.Bytes()) != "abcde" || !b.IsCut() {
		t.Errorf("got %q, cut %v, want %q", b.String(), b.IsCut(), "abcde")
	}
	full := capped.Buffer{Limit: 5}
	if io.WriteString(&full, "abcde"); full.IsCut() {
		t.Error("a full buffer is cut")
	}
}

// TestReader checks that the limit applies to each value, and not to all values together.
func TestReader(t *testing.T) {
	r := &capped.Reader{R: strings.NewReader("abcdefghij"), Limit: 3, What: "value"}
	b := make([]byte, 2)
	for i := range 6 {
		if i == 2 {
			r.Next()
		}
		n, err := r.Read(b)
		if wantErr := i >= 4; (err != nil) != wantErr || err != nil && !strings.Contains(err.Error(), "no end of a value within 3 bytes") {
			t.Errorf("read %d: got %d bytes and %v", i, n, err)
		}
	}
}

// numbers is a list of at most three numbers.
type numbers []int

func (n *numbers) UnmarshalJSON(text []byte) (err error) {
	*n, err = capped.DecodeList[int](text, 3)
	return err
}

// TestDecodeList checks the limit, also for a list that another value replaces, and that other values
// decode as without a limit.
func TestDecodeList(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       numbers
		fails      bool
	}{
		{name: "no elements", text: `{"a":[]}`, want: numbers{}},
		{name: "null", text: `{"a":null}`},
		{name: "missing", text: `{}`},
		{name: "at the limit", text: `{"a":[1,2,3]}`, want: numbers{1, 2, 3}},
		{name: "above the limit", text: `{"a":[1,2,3,4]}`, fails: true},
		{name: "key with a long and a short list", text: `{"a":[1,2,3,4],"A":[]}`, fails: true},
		{name: "object", text: `{"a":{}}`, fails: true},
		{name: "wrong element", text: `{"a":[1,"2"]}`, fails: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got struct{ A numbers }
			err := json.Unmarshal([]byte(tt.text), &got)
			if (err != nil) != tt.fails || !tt.fails && (!slices.Equal(got.A, tt.want) || (got.A == nil) != (tt.want == nil)) {
				t.Errorf("got %v, %v, want %v, failure %v", got.A, err, tt.want, tt.fails)
			}
		})
	}
}

// FuzzDecodeList checks that no text makes a list longer than its limit.
func FuzzDecodeList(f *testing.F) {
	for _, text := range []string{`[1,2]`, `[1,2,3,4]`, `[`, `null`, `[null,{}]`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if list, err := capped.DecodeList[int](text, 3); len(list) > 3 {
			t.Errorf("got %d elements, %v", len(list), err)
		}
	})
}
