package jobs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// maxFileBytes bounds a job file. A real one has a few kilobytes; a larger file
// is a wrong path, such as a checkpoint.
const maxFileBytes = 1 << 20

// Load reads and checks the job file at path, which must be a regular file. Use it for
// files that a program finds, such as the copy in a run directory: it never waits for a
// FIFO. The error is of type [Diagnostics] if the file is not a valid spec. An error of
// reading wraps the cause and may have a hint.
func Load(path string) (*Job, error) {
	src, err := safefile.Read(path, maxFileBytes, 0)
	if errors.Is(err, safefile.ErrTooLarge) {
		return nil, tooLarge(path)
	}
	if err != nil {
		return nil, &readError{err}
	}
	return Parse(path, src)
}

// Read returns the bytes of a job file for [Parse]. Use it for a path from the command
// line: it may name a pipe, such as /dev/stdin or a shell's <(command), and Read waits for
// the writer. A file that is too large is an error of type [Diagnostics].
func Read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, &readError{err}
	}
	defer f.Close()
	src, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, &readError{err}
	}
	if len(src) > maxFileBytes {
		return nil, tooLarge(path)
	}
	return src, nil
}

// Parse checks the bytes of a job file; filename is for messages only. Each
// override takes the place of what the file says, and is checked like it. The
// error is of type [Diagnostics] and holds every mistake, or the first one alone
// if the bytes are not TOML. It accepts CRLF line ends and a UTF-8 byte order
// mark, which some editors on Windows write.
func Parse(filename string, src []byte, overrides ...Override) (*Job, error) {
	l, doc, err := readDocument(filename, src)
	if err != nil {
		return nil, err
	}
	if len(doc) == 0 {
		if help := l.otherFormat(); help != "" {
			return nil, Diagnostics{{File: filename, Message: "the file holds no keys", Allowed: help}}
		}
		return nil, Diagnostics{{File: filename, Message: "the file holds no keys; `ddpbatch init` writes one to start from"}}
	}
	if err := override(l, doc, overrides); err != nil {
		return nil, err
	}
	return decodeJob(l, doc)
}

// decodeJob turns a document into a Job, or into all that is wrong with it. Keys
// that are meant to be given, but are not for a mistake elsewhere, are not missed.
func decodeJob(l *layout, doc map[string]any, meant ...string) (*Job, error) {
	if _, sweeps := doc["sweep"]; sweeps {
		return decodeSweep(l, doc)
	}
	l.doc = doc
	job := &Job{layout: l}
	d := newDecoder(l, job)
	for _, key := range meant {
		d.meant[key] = true
	}
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
// make. A value that an [Override] gives has no line, and where it came from for
// a file. Where nothing gives the key, it has no line: see [Job.Near].
func (j *Job) At(key string) Diagnostic {
	if j.layout == nil {
		return Diagnostic{Key: key}
	}
	return j.layout.at(key)
}

// atElement is At for one element of an array.
func (j *Job) atElement(key string, i int) Diagnostic {
	name := fmt.Sprintf("%s[%d]", key, i)
	if j.layout == nil {
		return Diagnostic{Key: name}
	}
	if at := j.layout.lookup(key); i < len(at.elements) {
		return j.layout.point(name, at.elements[i])
	}
	d := j.layout.at(key)
	d.Key = name
	return d
}

// Near is At for a key that nothing may give: it then points at the nearest table
// around it that is given.
func (j *Job) Near(key string) Diagnostic {
	d := j.At(key)
	if j.layout == nil || j.Gives(key) {
		return d
	}
	for table := key; d.Line == 0 && d.File == j.layout.file; {
		dot := strings.LastIndexByte(table, '.')
		if dot < 0 {
			break
		}
		table = table[:dot]
		d = j.layout.at(table)
	}
	d.Key = key
	return d
}

// Gives says whether the file, or what stands over it, gives the key a value; if
// not, the Job has its default.
func (j *Job) Gives(key string) bool {
	if j.layout == nil {
		return false
	}
	var at any = j.layout.doc
	for _, name := range strings.Split(key, ".") {
		table, _ := at.(map[string]any)
		inner, ok := table[name]
		if !ok {
			return false
		}
		at = inner
	}
	return true
}

// Source is a job file of this very job, which must have been parsed: the file
// itself, or where something stands over it, or this is an element of a sweep, one
// that says the same without.
func (j *Job) Source() ([]byte, error) {
	if !j.layout.edited {
		return []byte(j.layout.src), nil
	}
	var b bytes.Buffer
	for _, key := range slices.Sorted(maps.Keys(j.layout.over)) {
		if from := j.layout.over[key]; from != "" {
			fmt.Fprintf(&b, "# %s: by %s\n", key, visible(from))
		}
	}
	e := toml.NewEncoder(&b)
	e.Indent = ""
	if err := e.Encode(j.layout.doc); err != nil {
		return nil, fmt.Errorf("write the job file: %w", err)
	}
	return b.Bytes(), nil
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
