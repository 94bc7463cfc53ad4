package jobs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"strings"

	"github.com/BurntSushi/toml"
)

// maxFileBytes bounds a job file. A real one has a few kilobytes; a larger file
// is a wrong path, such as a checkpoint.
const maxFileBytes = 1 << 20

// Load reads and checks a job file. The error is of type [Diagnostics] if the
// file could be read but is not a good spec; an error of reading wraps the
// cause and may have a hint.
func Load(path string) (*Job, error) {
	src, err := Read(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, src)
}

// Read returns the bytes of a job file for [Parse], for callers that keep them.
// A file that is too large for one is refused with [Diagnostics].
func Read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, &readError{err}
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, &readError{err}
	}
	if info.Size() > maxFileBytes && info.Mode().IsRegular() {
		return nil, tooLarge(path)
	}
	src, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, &readError{err}
	}
	return src, nil
}

// Parse checks the bytes of a job file; filename is for messages only. The
// error is of type [Diagnostics] and holds every mistake, or the first one
// alone if the bytes are not TOML. It accepts CRLF line ends and a UTF-8 byte
// order mark, which some editors on Windows write.
func Parse(filename string, src []byte) (*Job, error) {
	if len(src) > maxFileBytes {
		return nil, tooLarge(filename)
	}
	text := strings.TrimPrefix(string(src), "\ufeff")
	l := newLayout(filename, text)
	if d, ok := l.notText(); ok {
		return nil, Diagnostics{d}
	}
	if l.tooDeep.known() {
		d := l.place(l.tooDeep)
		d.Message = fmt.Sprintf("nested more than %d levels deep", maxDepth)
		return nil, Diagnostics{d}
	}
	doc := map[string]any{}
	if _, err := toml.Decode(text, &doc); err != nil {
		return nil, Diagnostics{l.syntaxError(err)}
	}
	if len(doc) == 0 {
		return nil, Diagnostics{{File: filename, Message: "the file holds no keys; `ddpbatch init` writes one to start from"}}
	}

	job := &Job{layout: l}
	d := &decoder{layout: l, given: map[string]bool{}, refused: map[string]bool{}, meant: map[string]bool{}}
	d.table(nil, doc, reflect.ValueOf(job).Elem())
	d.check(job)
	if len(d.found) > 0 {
		return nil, d.diagnostics()
	}
	job.fillDefaults()
	return job, nil
}

// At returns a diagnostic without a message that points at the value of a key,
// such as "site" or "train.data.path", for checks that this package cannot
// make. Where the file does not give the key, it has no line.
func (j *Job) At(key string) Diagnostic {
	if j.layout == nil {
		return Diagnostic{Key: key}
	}
	at := j.layout.lookup(key)
	if !at.value.known() {
		return j.layout.point(key, at.key)
	}
	return j.layout.point(key, at.value)
}

func tooLarge(path string) Diagnostics {
	return Diagnostics{{File: path, Message: fmt.Sprintf(
		"larger than %d KiB: is this a job file?", maxFileBytes>>10)}}
}

// A readError is a job file that cannot be read.
type readError struct{ err error }

func (e *readError) Error() string { return "read job file: " + e.err.Error() }
func (e *readError) Unwrap() error { return e.err }

// Hint says what to do when there is no such file.
func (e *readError) Hint() string {
	if errors.Is(e.err, fs.ErrNotExist) {
		return "`ddpbatch init` writes a commented job file to start from"
	}
	return ""
}
