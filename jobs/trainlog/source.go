package trainlog

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
	"github.com/ddpbatch/ddpbatch/trainer/metrics/tensorboard"
)

// A Format is the format of a file with metrics.
type Format string

// Formats of files.
const (
	JSONLines   Format = "jsonl"       // one object per line
	CSV         Format = "csv"         // with a header
	TensorBoard Format = "tensorboard" // event files, or a directory that contains them
)

const (
	maxFiles     = 16       // files that a Source follows
	maxEntries   = 2000     // directory entries that a Source reads in each search
	maxDirDepth  = 4        // levels of directories in which a Source searches for event files
	maxCSVRead   = 32 << 20 // bytes of a CSV file: [maxRead] would skip lines when the program rewrites the file
	eventPattern = "events.out.tfevents."
)

// A Source reads metrics from files that a program writes. It ignores what the files contained
// when the source was created.
type Source struct {
	parser *Parser
	path   string // may be a pattern, as in [filepath.Match]
	format Format
	files  map[string]*sourceFile
	err    error // first error
}

// sourceFile is a file that a Source follows.
type sourceFile struct {
	lines   *Follower
	header  []string           // of a CSV file; nil until it is read
	read    int                // lines of a CSV file that were read since it was last rewritten
	old     int                // lines of a CSV file to skip: they were read before it was rewritten
	created int                // lines of a CSV file that preceded the source; -1 after it was rewritten
	events  tensorboard.Reader // of an event file
	pending []Field            // of the newest step in an event file
	step    int64              // that step
	ignore  bool               // the file cannot be read
}

// NewSource returns a source for the files at path, which must be absolute.
func NewSource(p *Parser, path string, format Format) (*Source, error) {
	if _, err := filepath.Match(path, ""); err != nil || !filepath.IsAbs(path) {
		return nil, fmt.Errorf("%q is not a valid path or pattern", path)
	}
	s := &Source{parser: p, path: path, format: format, files: map[string]*sourceFile{}}
	for _, f := range s.find() {
		switch format {
		case CSV:
			file := s.add(f.path, 0)
			file.old = math.MaxInt
			_ = s.readCSV(file, f, nil) // counts the lines
			file.old, file.created = 0, file.read
		case TensorBoard:
			s.add(f.path, 0).events.Offset = eventStart(f)
		default:
			s.add(f.path, f.size)
		}
	}
	return s, nil
}

type foundFile struct {
	path     string
	size     int64
	modified time.Time
}

// eventStart returns the position after the last complete record of an event file.
func eventStart(found foundFile) int64 {
	f, err := safefile.Open(found.path, 0)
	if err != nil {
		return 0
	}
	defer f.Close()
	var r tensorboard.Reader
	for {
		more, err := r.Read(f, found.size, func(tensorboard.Point) {})
		if err != nil || !more {
			return r.Offset
		}
	}
}

// find returns the files of the source, the newest [maxFiles] of them, oldest first.
func (s *Source) find() []foundFile {
	paths := []string{s.path}
	if strings.ContainsAny(s.path, `*?[\`) {
		paths, _ = filepath.Glob(s.path)
	}
	var all []foundFile
	entries := 0
	for _, path := range paths {
		info, err := os.Stat(path)
		switch {
		case err != nil:
		case info.Mode().IsRegular():
			all = append(all, foundFile{path, info.Size(), info.ModTime()})
		case info.IsDir() && s.format == TensorBoard:
			all = append(all, findEvents(path, &entries)...)
		}
	}
	slices.SortFunc(all, func(a, b foundFile) int {
		return cmp.Or(a.modified.Compare(b.modified), strings.Compare(a.path, b.path))
	})
	return all[max(0, len(all)-maxFiles):]
}

// findEvents returns the event files in a directory and the directories below it.
func findEvents(dir string, entries *int) (all []foundFile) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if *entries++; err != nil || *entries > maxEntries {
			return fs.SkipDir
		}
		if rel, _ := filepath.Rel(dir, path); d.IsDir() && strings.Count(rel, "/") >= maxDirDepth {
			return fs.SkipDir
		}
		if d.Type().IsRegular() && strings.Contains(d.Name(), eventPattern) {
			if info, err := d.Info(); err == nil {
				all = append(all, foundFile{path, info.Size(), info.ModTime()})
			}
		}
		return nil
	})
	return all
}

func (s *Source) add(path string, offset int64) *sourceFile {
	file := &sourceFile{lines: Follow(func() (*os.File, error) { return safefile.Open(path, 0) }, offset)}
	if s.format == CSV {
		file.lines.maxRead = maxCSVRead
	}
	s.files[path] = file
	return file
}

// Read calls f for each record that the program has written since the last call. It returns the
// first error of all calls once.
func (s *Source) Read(f func(metrics.Record)) error {
	for _, found := range s.find() {
		file, ok := s.files[found.path]
		if !ok {
			file = s.add(found.path, 0)
		}
		if file.ignore {
			continue
		}
		var err error
		switch s.format {
		case TensorBoard:
			err = s.readEvents(file, found, f)
		case CSV:
			err = s.readCSV(file, found, f)
		default:
			err = file.lines.Read(func(line string) { s.emit(jsonFields(line), f) })
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			file.ignore = true
			if s.err == nil {
				s.err = fmt.Errorf("read the metrics in %q: %w", found.path, err)
				return s.err
			}
		}
	}
	return nil
}

func (s *Source) emit(fields []Field, f func(metrics.Record)) {
	for _, m := range s.parser.Fields(fields) {
		f(m)
	}
}

// readCSV reads the new lines of a CSV file. A program may rewrite the file: Lightning adds columns
// for new metrics, other programs write all lines again. The lines that were read before are then
// skipped. A file that becomes shorter before it had new lines is a new file of the program.
func (s *Source) readCSV(file *sourceFile, found foundFile, f func(metrics.Record)) error {
	var lines strings.Builder // without those that are skipped: a file can have millions of lines
	count := 0
	add := func(line string) {
		if count++; file.read+count > file.old {
			lines.WriteString(line + "\n")
		}
	}
	before := file.lines.offset
	if err := file.lines.Read(add); err != nil {
		return err
	}
	// The header is read after the lines: if it is unchanged, the lines belong to it.
	header, err := readHeader(found.path)
	if err != nil {
		return err
	}
	isNew := header != nil && !slices.Equal(header, file.header)
	if file.lines.offset < before || isNew && file.header != nil {
		if file.lines.offset < before && file.read == file.created {
			file.read = 0
		}
		file.created = -1
		file.old, file.read, count = max(file.old, file.read), 0, 0
		lines.Reset()
		file.lines.restart()
		if err := file.lines.Read(add); err != nil {
			return err
		}
	}
	if isNew {
		file.header = header
	}
	file.read += count
	for line := range strings.Lines(lines.String()) {
		var fields []Field
		for i, cell := range splitCSV(line) {
			if i < len(file.header) && cell != "" {
				if v, err := strconv.ParseFloat(strings.TrimSpace(cell), 64); err == nil {
					fields = append(fields, Field{file.header[i], v})
				}
			}
		}
		s.emit(fields, f)
	}
	return nil
}

// readHeader returns the column names of a CSV file. It returns nil if the first line is not
// complete yet.
func readHeader(path string) ([]string, error) {
	file, err := safefile.Open(path, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text := make([]byte, maxLine)
	n, err := file.ReadAt(text, 0)
	end := bytes.IndexByte(text[:n], '\n')
	switch {
	case end < 0 && err == nil:
		return nil, fmt.Errorf("the first line is longer than %d bytes", maxLine)
	case end < 0:
		return nil, nil
	}
	header := splitCSV(strings.TrimRight(string(text[:end]), "\r"))
	for i := range header {
		header[i] = strings.TrimSpace(header[i])
	}
	if len(header) > maxFields {
		return nil, fmt.Errorf("it has %d columns, more than %d", len(header), maxFields)
	}
	return header, nil
}

func splitCSV(line string) []string {
	r := csv.NewReader(strings.NewReader(strings.TrimPrefix(line, "\ufeff")))
	r.FieldsPerRecord, r.LazyQuotes = -1, true
	cells, err := r.Read()
	if err != nil {
		return nil
	}
	return cells
}

// readEvents reads the new records of an event file. A program writes the scalars of a step one by
// one, so the newest step counts when the next one begins, or when nothing was written since the
// last call.
func (s *Source) readEvents(file *sourceFile, found foundFile, f func(metrics.Record)) error {
	opened, err := safefile.Open(found.path, 0)
	if err != nil {
		return err
	}
	defer opened.Close()
	before := file.events.Offset
	_, err = file.events.Read(opened, found.size, func(p tensorboard.Point) {
		if p.Step != file.step {
			s.flush(file, f)
			file.step = p.Step
		}
		if len(file.pending) < maxFields {
			file.pending = append(file.pending, Field{p.Tag, p.Value})
		}
	})
	if file.events.Offset == before {
		s.flush(file, f)
	}
	return err
}

// Flush calls f for the records of steps that may be incomplete. The caller calls it when the
// program has ended.
func (s *Source) Flush(f func(metrics.Record)) {
	for _, file := range s.files {
		s.flush(file, f)
	}
}

func (s *Source) flush(file *sourceFile, f func(metrics.Record)) {
	if len(file.pending) > 0 {
		s.emit(append([]Field{{"step", float64(file.step)}}, file.pending...), f)
	}
	file.pending = nil
}
