package data

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/ddpbatch/ddpbatch/internal/capped"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// csvFile is a parsed CSV file.
type csvFile struct {
	path   string
	names  []string // of the columns; nil without a header line
	header int      // line number of the header
	target int      // column to predict
	x      []float32
	inputs int
	// one value per sample, by task
	targets []float32
	labels  []int32
	classes int // one more than the largest label
}

// openCSV reads the training file and, if there is one, the held-out file.
func openCSV(ctx context.Context, o Options) (train, eval Dataset, err error) {
	rules := csvRules{target: o.Target, classify: o.Task == TaskClassification}
	t, err := readCSVPath(ctx, o.Path, rules)
	if err != nil {
		return nil, nil, err
	}
	if err := checkVariety(t.labels); err != nil {
		return nil, nil, hints.Errorf(oneClassHint, "read %q: %s%w", o.Path, t.column(t.target), err)
	}
	if o.Holdout > 0 {
		return t.dataset(t.classes).split(o.Path, o.Holdout, o.Seed)
	}
	if o.EvalPath == "" {
		return t.dataset(t.classes), nil, nil
	}
	rules.like = t
	e, err := readCSVPath(ctx, o.EvalPath, rules)
	if err != nil {
		return nil, nil, err
	}
	return t.dataset(t.classes), e.dataset(t.classes), nil
}

// dataset returns the dataset of the file.
func (f *csvFile) dataset(classes int) *table {
	if f.labels != nil {
		return newClassTable("classes", floatRows{f.x, f.inputs}, f.labels, classes)
	}
	return newValueTable("values", floatRows{f.x, f.inputs}, f.targets, 1)
}

// csvRules configures how a file is read.
type csvRules struct {
	target   string   // name or number of the column to predict; empty: the last
	classify bool     // targets are labels
	like     *csvFile // file with the same columns whose classes must not be exceeded, or nil
}

// readCSVPath reads the file at path, compressed or not.
func readCSVPath(ctx context.Context, path string, rules csvRules) (*csvFile, error) {
	r, err := openContent(ctx, path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return readCSV(path, r, rules)
}

// readCSV reads a file of comma-separated values, RFC 4180, with one sample per line. The first
// line may be a header, see readHeader.
func readCSV(path string, r io.Reader, rules csvRules) (*csvFile, error) {
	f := &csvFile{path: path}
	limited := &capped.Reader{R: r, Limit: maxRecord, What: "record"}
	in := csv.NewReader(skipBOM(limited))
	in.ReuseRecord = true
	in.TrimLeadingSpace = true
	first := true
	for {
		limited.Next()
		record, err := in.Read()
		if err == io.EOF {
			break
		}
		if errors.Is(err, csv.ErrFieldCount) {
			return nil, f.at(in, 0, "%d columns, but the first line has %d", len(record), f.inputs+1)
		}
		if err != nil {
			return nil, f.syntaxError(in, err)
		}
		if first {
			first = false
			header, err := f.readHeader(in, record, rules)
			if err != nil {
				return nil, err
			}
			if header {
				continue
			}
		}
		if err := f.add(in, record, rules); err != nil {
			return nil, err
		}
	}
	if len(f.x) == 0 {
		if f.names == nil {
			return nil, fmt.Errorf("%s:1:1: no samples", path)
		}
		return nil, fmt.Errorf("%s:%d:1: no samples after the line of column names", path, f.header)
	}
	return f, nil
}

// maxRecord is the maximum size of a record in bytes. The parser needs up to 20 times as much
// memory. A row of a million columns is smaller.
const maxRecord = 16 << 20

// add appends one sample.
func (f *csvFile) add(in *csv.Reader, record []string, rules csvRules) error {
	if len(f.x) > maxValues-len(record) {
		return f.at(in, 0, "more than %d values", maxValues)
	}
	if len(f.x)/f.inputs >= random.MaxPerm {
		return f.at(in, 0, "more than %d samples", random.MaxPerm)
	}
	for i, text := range record {
		if i == f.target && rules.classify {
			label, err := f.label(in, text, rules.like)
			if err != nil {
				return err
			}
			f.labels = append(f.labels, label)
			f.classes = max(f.classes, int(label)+1)
			continue
		}
		value, err := parseNumber(text)
		if err != nil {
			return f.at(in, i, "%s%w", f.column(i), err)
		}
		if i == f.target {
			f.targets = append(f.targets, value)
		} else {
			f.x = append(f.x, value)
		}
	}
	return nil
}

// label parses a class label.
func (f *csvFile) label(in *csv.Reader, text string, like *csvFile) (int32, error) {
	label, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, hints.Add(f.at(in, f.target, "%slabel %q is not an integer from 0", f.column(f.target), text),
			"number the classes 0, 1, 2, ... in the column to predict, or choose another column as target")
	}
	if label >= maxClasses {
		return 0, hints.Add(f.at(in, f.target, "%slabel %d, but at most %d classes are allowed", f.column(f.target), label, maxClasses),
			"set target to the column to predict, or set the task to regression")
	}
	if like != nil && int(label) >= like.classes {
		return 0, f.at(in, f.target, "%slabel %d, but those in %q are 0 to %d", f.column(f.target), label, like.path, like.classes-1)
	}
	return int32(label), nil
}

// parseNumber parses a finite float32.
func parseNumber(text string) (float32, error) {
	value, err := strconv.ParseFloat(text, 32)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%q is out of the range of a 32-bit number", text)
	case err != nil && text == "":
		return 0, errors.New("no value")
	case err != nil:
		return 0, fmt.Errorf("%q is not a number", text)
	case value-value != 0:
		return 0, fmt.Errorf("%q is not finite", text)
	}
	return float32(value), nil
}

// column returns the name of a column as a prefix for messages, or "" if columns have no names.
func (f *csvFile) column(i int) string {
	if f.names == nil {
		return ""
	}
	return fmt.Sprintf("column %q: ", f.names[i])
}

// at returns an error with the position file:line:column of a field of the last record.
func (f *csvFile) at(in *csv.Reader, field int, format string, args ...any) error {
	line, column := in.FieldPos(field)
	return fmt.Errorf("%s:%d:%d: %w", f.path, line, column, fmt.Errorf(format, args...))
}

// syntaxError formats an error of the CSV reader like at.
func (f *csvFile) syntaxError(in *csv.Reader, err error) error {
	if pe, ok := errors.AsType[*csv.ParseError](err); ok {
		return fmt.Errorf("%s:%d:%d: %w", f.path, pe.Line, pe.Column, pe.Err)
	}
	return fmt.Errorf("read %q: at byte %d: %w", f.path, in.InputOffset(), stripPath(err))
}
