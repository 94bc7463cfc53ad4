package output

import (
	"bytes"
	"testing"
)

// FuzzParts checks that the readers of the files of a rank accept any content, because a run
// directory may belong to another user.
func FuzzParts(f *testing.F) {
	f.Add([]byte(tailHeader + "12\nline\n" + tailEnd + "old\n"))
	f.Add([]byte("line\n" + headEnd + "rank-00001.tail-*.out\n"))
	f.Add([]byte(tailHeader + "-1\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if offset, output, ok := parseTail(text); ok && (offset < 0 || !bytes.Contains(text, output)) {
			t.Errorf("got output %q at %d", output, offset)
		}
		if head := cutHead(text); !bytes.HasPrefix(text, head) {
			t.Errorf("got %q, want the start of the file", head)
		}
		if number, _, ok := ParseBase(string(text)); ok && number < 0 {
			t.Errorf("got number %d", number)
		}
	})
}
