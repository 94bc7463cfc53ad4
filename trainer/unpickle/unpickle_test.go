package unpickle

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

var size = map[Class]bool{"torch.Size": true, "builtins.slice": true}

// TestDecode checks the values of pickles that Python writes.
func TestDecode(t *testing.T) {
	for name, tt := range map[string]struct {
		pickle string
		want   any
	}{
		"none":             {"\x80\x02N.", nil},
		"protocol 4":       {"\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00\x8c\x01a\x94.", "a"},
		"bools":            {"\x80\x02\x88\x89\x86.", Tuple{true, false}},
		"small integers":   {"\x80\x02K\xffM\xff\xff\x86.", Tuple{int64(255), int64(65535)}},
		"negative":         {"\x80\x02J\xff\xff\xff\xff.", int64(-1)},
		"large":            {"\x80\x02\x8a\x05\x00\x00\x00\x00\x01.", int64(1 << 32)},
		"large negative":   {"\x80\x02\x8a\x05\x00\x00\x00\x00\xff.", int64(-1 << 32)},
		"zero":             {"\x80\x02\x8a\x00.", int64(0)},
		"float":            {"\x80\x02G?\xe0\x00\x00\x00\x00\x00\x00.", 0.5},
		"strings":          {"\x80\x02X\x02\x00\x00\x00\xc3\xa4\x8d\x01\x00\x00\x00\x00\x00\x00\x00b\x86.", Tuple{"ä", "b"}},
		"bytes":            {"\x80\x04C\x02\xff\x00.", []byte{255, 0}},
		"protocol 2 bytes": {"\x80\x02c_codecs\nencode\nX\x03\x00\x00\x00\x00\xc3\xbfX\x06\x00\x00\x00latin1\x86R.", []byte{0, 255}},
		"tuples":           {"\x80\x02)K\x01\x85K\x01K\x02K\x03\x87(K\x01t\x86\x87.", Tuple{Tuple(nil), Tuple{int64(1)}, Tuple{Tuple{int64(1), int64(2), int64(3)}, Tuple{int64(1)}}}},
		"list":             {"\x80\x02]K\x01a(K\x02K\x03e.", &List{[]any{int64(1), int64(2), int64(3)}}},
		"dict":             {"\x80\x02}K\x01K\x02s(K\x03K\x04u.", &Dict{[]any{int64(1), int64(3)}, []any{int64(2), int64(4)}}},
		"ordered dict":     {"\x80\x02ccollections\nOrderedDict\n)RK\x01K\x02s}b.", &Dict{[]any{int64(1)}, []any{int64(2)}}},
		"memo":             {"\x80\x02]q\x00h\x00\x94r\x02\x00\x00\x00j\x01\x00\x00\x00\x87.", nil}, // a list three times
		"object":           {"\x80\x02ctorch\nSize\nK\x02\x85\x85R.", &Object{Class: "torch.Size", Args: Tuple{Tuple{int64(2)}}}},
		"object of 4":      {"\x80\x04\x8c\x05torch\x8c\x04Size\x93)\x81}\x8c\x01aK\x01sb.", &Object{Class: "torch.Size", State: &Dict{[]any{"a"}, []any{int64(1)}}}},
		"module of 2":      {"\x80\x02c__builtin__\nslice\n.", Class("builtins.slice")},
		"reference":        {"\x80\x02K\x01Q.", &Reference{int64(1)}},
	} {
		got, err := Decode([]byte(tt.pickle), size)
		if name == "memo" {
			list, ok := got.(Tuple)
			if err != nil || !ok || list[0] != list[1] || list[0] != list[2] {
				t.Errorf("%s: got %#v (%v)", name, got, err)
			}
			continue
		}
		if o, ok := got.(*Object); ok && len(o.Args) == 0 {
			o.Args = nil
		}
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: got %#v (%v), want %#v", name, got, err, tt.want)
		}
	}
}

// TestDecodeErrors checks that invalid pickles are rejected.
func TestDecodeErrors(t *testing.T) {
	for name, tt := range map[string]struct{ pickle, want string }{
		"empty":                 {"", "at byte 0: unexpected end"},
		"no end":                {"\x80\x02N", "at byte 3: unexpected end"},
		"protocol 0":            {"(lp0\n.", "'l'|\"l\""},
		"protocol 9":            {"\x80\x09.", "protocol 9"},
		"two values":            {"\x80\x02NN.", "2 values at the end"},
		"no value":              {"\x80\x02.", "0 values"},
		"open mark":             {"\x80\x02N(.", "at the end"},
		"no mark":               {"\x80\x02Nt.", "no mark"},
		"tuple of nothing":      {"\x80\x02\x85.", "stack is empty"},
		"tuple beyond the mark": {"\x80\x02N(\x85t.", "stack is empty"},
		"append to a number":    {"\x80\x02K\x01K\x02a.", "does not fit"},
		"pairs for a list":      {"\x80\x02]K\x01K\x02s.", "does not fit"},
		"odd pairs":             {"\x80\x02}(K\x01u.", "does not fit"},
		"append to nothing":     {"\x80\x02(K\x01e.", "stack is empty"},
		"long string":           {"\x80\x02X\xff\xff\xff\x7fa.", "unexpected end"},
		"longer string":         {"\x80\x02\x8d\xff\xff\xff\xff\xff\xff\xff\xffa.", "a size of"},
		"not UTF-8":             {"\x80\x02X\x01\x00\x00\x00\xff.", "UTF-8"},
		"long integer":          {"\x80\x02\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01.", "9 bytes"},
		"memo":                  {"\x80\x02h\x05.", "not value 5"},
		"memo with a hole":      {"\x80\x02Nr\xff\xff\xff\x00.", "want value 0 next"},
		"memo of nothing":       {"\x80\x02\x94.", "stack is empty"},
		"call of a string":      {"\x80\x02X\x01\x00\x00\x00a)R.", "without a class"},
		"call without a tuple":  {"\x80\x02ctorch\nSize\nNR.", "without a tuple"},
		"dict with arguments":   {"\x80\x02ccollections\nOrderedDict\nN\x85R.", "with arguments"},
		"other codec":           {"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00hex\x86R.", "these arguments"},
		"bytes above Latin-1":   {"\x80\x02c_codecs\nencode\nX\x02\x00\x00\x00\xc4\x80X\x06\x00\x00\x00latin1\x86R.", "Latin-1"},
		"class of numbers":      {"\x80\x04K\x01K\x02\x93.", "not a string"},
		"state of a number":     {"\x80\x02K\x01Nb.", "without an object"},
		"unfinished class":      {"\x80\x02ctorch\nSize", "unexpected end"},
	} {
		_, err := Decode([]byte(tt.pickle), size)
		found := false
		for word := range strings.SplitSeq(tt.want, "|") {
			found = found || err != nil && strings.Contains(err.Error(), word)
		}
		if !found {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
}

// TestDecodeIsBounded checks that a string that a pickle contains once does not become many bytes
// objects, and that objects cannot share many attributes, each of which is read in a lookup.
func TestDecodeIsBounded(t *testing.T) {
	const bytes = "c_codecs\nencode\nh\x00X\x06\x00\x00\x00latin1\x86R"
	text := "\x80\x02(X\x00\x10\x00\x00" + strings.Repeat("x", 4096) + "q\x00"
	if _, err := Decode([]byte(text+bytes+"t."), size); err != nil {
		t.Errorf("one object: %v", err)
	}
	if _, err := Decode([]byte(text+strings.Repeat(bytes, 10)+"t."), size); err == nil || !strings.Contains(err.Error(), "several bytes objects") {
		t.Errorf("10 objects: got %v", err)
	}
	for n, want := range map[int]any{maxAttributes: int64(1), maxAttributes + 1: nil} {
		o := Object{State: &Dict{Keys: make([]any, n), Values: make([]any, n)}}
		o.State.(*Dict).Keys[n-1], o.State.(*Dict).Values[n-1] = "a", int64(1)
		if got := o.Attribute("a"); got != want {
			t.Errorf("%d attributes: got %v, want %v", n, got, want)
		}
	}
}

// TestDecodeRejectsClasses checks that the error names a class that is not allowed, in each way to
// name it.
func TestDecodeRejectsClasses(t *testing.T) {
	for _, pickle := range []string{"\x80\x02cposix\nsystem\nX\x02\x00\x00\x00id\x85R.", "\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R."} {
		_, err := Decode([]byte(pickle), size)
		var class *ClassError
		if !errors.As(err, &class) || class.Class != "posix.system" {
			t.Errorf("%q: got %v, want an error that names posix.system", pickle, err)
		}
	}
}

// FuzzDecode checks that no pickle crashes the decoder.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x80\x02ctorch\nSize\nq\x00(K\x01J\xff\xff\xff\xfftq\x01\x85R}X\x01\x00\x00\x00aG?\xe0\x00\x00\x00\x00\x00\x00sb."))
	f.Add([]byte("\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00\x8c\x05torch\x94\x8c\x04Size\x94\x93)\x81](NK\x02\x8a\x02\x01\x02e\x86h\x01\x87Q."))
	f.Add([]byte("\x80\x02c_codecs\nencode\nX\x03\x00\x00\x00\x00\xc3\xbfX\x06\x00\x00\x00latin1\x86R."))
	f.Fuzz(func(t *testing.T, pickle []byte) {
		_, _ = Decode(pickle, size)
	})
}
