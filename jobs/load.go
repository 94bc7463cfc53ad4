package jobs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// maxFileBytes is the maximum size of a job file in bytes. Job files have a few kilobytes. A
// larger file means a wrong path, such as a checkpoint.
const maxFileBytes = 1 << 20

// Load reads and checks the job file at path, which must be a regular file. Use it for paths
// that ddpbatch determines, such as the copy in a run directory: it never waits for a FIFO. If
// the content is invalid, the error has type [Diagnostics]. A read error wraps the cause and
// may have a hint.
func Load(path string) (*Job, error) {
	src, err := ReadRegular(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, src)
}

// ReadRegular returns the bytes of a job file like [Read], but only of a regular file.
func ReadRegular(path string) ([]byte, error) {
	src, err := safefile.Read(path, maxFileBytes, 0)
	if errors.Is(err, safefile.ErrTooLarge) {
		return nil, tooLarge(path)
	}
	if err != nil {
		return nil, readError(err)
	}
	return src, nil
}

// Read returns the bytes of a job file for [Parse]. Use it for a path from the command line.
// The path may name a pipe of this user, such as /dev/stdin or a shell's <(command), and Read waits
// for the writer. If the file is too large, the error has type [Diagnostics].
func Read(path string) ([]byte, error) {
	f, err := safefile.OpenNamed(path)
	if err != nil {
		return nil, readError(err)
	}
	defer f.Close()
	src, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, readError(err)
	}
	if len(src) > maxFileBytes {
		return nil, tooLarge(path)
	}
	return src, nil
}

// Parse checks the bytes of a job file. Messages contain filename. Each override replaces a
// value of the file and is checked like it. The error has type [Diagnostics] and contains all
// errors, or only the first one if the bytes are not TOML. Parse accepts CRLF line endings and
// a UTF-8 byte order mark, which some editors on Windows write.
func Parse(filename string, src []byte, overrides ...Override) (*Job, error) {
	l, doc, err := readDocument(filename, src)
	if err != nil {
		return nil, err
	}
	if len(doc) == 0 {
		if help := l.detectFormat(); help != "" {
			return nil, Diagnostics{{File: filename, Message: "the file contains no keys", Allowed: help}}
		}
		return nil, Diagnostics{{File: filename, Message: "the file contains no keys; run `ddpbatch init` to create one"}}
	}
	if err := l.override(doc, overrides); err != nil {
		return nil, err
	}
	return decodeJob(l, doc)
}

// decodeJob converts a document to a Job, or returns all of its errors. It does not report the
// expected keys as missing, because an error elsewhere already affects them.
func decodeJob(l *layout, doc map[string]any, expected ...string) (*Job, error) {
	if _, ok := doc["sweep"]; ok {
		return decodeSweep(l, doc)
	}
	l.doc = doc
	job := &Job{layout: l}
	d := newDecoder(l, job)
	for _, key := range expected {
		d.guessed[key] = true
	}
	v := reflect.ValueOf(job).Elem()
	d.table(nil, doc, v)
	d.check(job)
	if len(d.found) > 0 {
		return nil, d.diagnostics()
	}
	d.setDefaults("", v)
	job.setComputedDefaults()
	return job, nil
}

// At returns a diagnostic without a message that points to the value of a key, such as "site"
// or "train.data.path". It is for checks outside this package. For a value from an [Override],
// the diagnostic has no line, and its file is the source of the override. For a key that is
// not set, it has no line: see [Job.Near].
func (j *Job) At(key string) Diagnostic {
	if j.layout == nil {
		return Diagnostic{Key: key}
	}
	return j.layout.at(key)
}

// atElement returns a diagnostic like At, for one element of an array.
func (j *Job) atElement(key string, i int) Diagnostic {
	name := fmt.Sprintf("%s[%d]", key, i)
	if j.layout == nil {
		return Diagnostic{Key: name}
	}
	if at := j.layout.lookup(key); i < len(at.elements) {
		return j.layout.diagnosticFor(name, at.elements[i])
	}
	d := j.layout.at(key)
	d.Key = name
	return d
}

// Near returns a diagnostic like At. If the key is not set, it points to the innermost table
// around the key that is in the file.
func (j *Job) Near(key string) Diagnostic {
	d := j.At(key)
	if j.layout == nil || j.IsSet(key) {
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

// IsSet reports whether the file or an override sets the key. If not, the Job has the default.
func (j *Job) IsSet(key string) bool {
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

// Source returns a job file for this job, which must have been parsed. It returns the original
// file if there are no overrides and the job is not a trial of a sweep. Otherwise, it returns
// an equivalent file that needs no overrides.
func (j *Job) Source() ([]byte, error) {
	if !j.layout.edited {
		return []byte(j.layout.src), nil
	}
	var b bytes.Buffer
	for _, key := range slices.Sorted(maps.Keys(j.layout.over)) {
		if last := j.layout.lastOverride(key); last.source != "" && last == j.layout.over[key] { // not replaced with a table around it
			fmt.Fprintf(&b, "# %s: by %s\n", key, sanitize(last.source))
		}
	}
	e := toml.NewEncoder(&b)
	e.Indent = ""
	if err := e.Encode(j.layout.doc); err != nil {
		return nil, fmt.Errorf("encode job file: %w", err)
	}
	return b.Bytes(), nil
}

func tooLarge(path string) Diagnostics {
	return Diagnostics{{File: path, Message: fmt.Sprintf(
		"larger than %d KiB; check that this is a job file", maxFileBytes>>10)}}
}

// readError returns the error for a job file that cannot be read.
func readError(err error) error {
	hint := ""
	if errors.Is(err, fs.ErrNotExist) {
		hint = "run `ddpbatch init` to create a commented job file"
	}
	return hints.Errorf(hint, "read job file: %w", err)
}
