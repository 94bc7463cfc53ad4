package jobs

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/BurntSushi/toml"
)

// A Document contains the position of each key in a decoded file.
type Document struct{ layout *layout }

// At returns a diagnostic without a message that points to the value of a key, such as
// "resource[1].nodes". It has no line if the key is not in the file.
func (d Document) At(key string) Diagnostic { return d.layout.at(key) }

// Decode reads a TOML file other than a job file, such as a site profile, by the rules of the
// job file. Unknown keys and invalid values are errors with a position. into points to a
// struct with toml tags whose fields have types of this package. The error has type
// [Diagnostics].
func Decode(filename string, src []byte, into any) (Document, error) {
	l, doc, err := readDocument(filename, src)
	if err != nil {
		return Document{}, err
	}
	d := newDecoder(l, into)
	d.table(nil, doc, reflect.ValueOf(into).Elem())
	if len(d.found) > 0 {
		return Document{}, d.diagnostics()
	}
	return Document{l}, nil
}

// readDocument decodes TOML without a schema and finds the position of each key.
func readDocument(filename string, src []byte) (*layout, map[string]any, error) {
	if len(src) > maxFileBytes {
		return nil, nil, tooLarge(filename)
	}
	text := strings.TrimPrefix(string(src), "\ufeff")
	l := newLayout(filename, text)
	if d, ok := l.checkText(); ok {
		return nil, nil, Diagnostics{d}
	}
	if d, ok := l.checkLimits(); ok {
		return nil, nil, Diagnostics{d}
	}
	doc := map[string]any{}
	if _, err := toml.Decode(text, &doc); err != nil {
		return nil, nil, Diagnostics{l.syntaxError(err)}
	}
	return l, doc, nil
}

// DecodeSome decodes some values of a job file into a struct. The file may be from another
// version of ddpbatch, so DecodeSome ignores keys that the struct does not have. It rejects
// files that are too large, too deeply nested, or have too long keys for the TOML decoder, because they
// may come from another user.
func DecodeSome(src []byte, into any) error {
	const name = "job.toml"
	if len(src) > maxFileBytes {
		return tooLarge(name)
	}
	text := strings.TrimPrefix(string(src), "\ufeff")
	if d, ok := newLayout(name, text).checkLimits(); ok {
		return Diagnostics{d}
	}
	_, err := toml.Decode(text, into)
	return err
}

// checkLimits returns a diagnostic if the document is nested too deeply for the decoder, or has a key
// that is too long.
func (l *layout) checkLimits() (d Diagnostic, ok bool) {
	at, message := l.tooDeep, fmt.Sprintf("nested more than %d levels deep", maxDepth)
	if l.tooLong.known() {
		at, message = l.tooLong, fmt.Sprintf("the key and the names of its tables are longer than %d bytes", maxKeyBytes)
	}
	if !at.known() {
		return d, false
	}
	d = l.diagnosticAt(at)
	d.Message = message
	l.redactEnv(&d, at.start)
	return d, true
}
