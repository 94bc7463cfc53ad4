package lazyregexp

import "testing"

// TestNew checks that an expression is compiled once, and only when it is needed.
func TestNew(t *testing.T) {
	word := New(`^[a-z]+$`)
	if !word().MatchString("abc") || word().MatchString("1") {
		t.Error("the expression does not match lower-case words")
	}
	if first, second := word(), word(); first != second {
		t.Error("two calls returned different expressions")
	}
	invalid := New(`(`) // does not panic
	defer func() {
		if recover() == nil {
			t.Error("no panic for an invalid expression")
		}
	}()
	invalid()
}
