package data

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// readHeader inspects the first record of a file. It determines whether it is a header and which
// column is the target, and checks that the columns match rules.like.
//
// A first line with only numbers is a sample. A line without numbers is a header, and so is a line
// whose only numbers count its columns from 0, as pandas writes for columns without names. Any
// other line is ambiguous, a sample or a header with an error, and is rejected.
func (f *csvFile) readHeader(in *csv.Reader, record []string, rules csvRules) (header bool, err error) {
	if len(record) < 2 {
		err := f.at(in, 0, "one column only, want inputs and a target")
		if strings.ContainsAny(record[0], ";\t") {
			err = hints.Add(err, "separate the columns by commas")
		}
		return false, err
	}
	f.inputs = len(record) - 1
	numbers, counted, oddField := 0, 0, -1
	for i, text := range record {
		switch _, err := strconv.ParseFloat(text, 64); {
		case err == nil || errors.Is(err, strconv.ErrRange):
			numbers++
			if text == strconv.Itoa(i) {
				counted++
			}
		case oddField < 0:
			oddField = i
		}
	}
	if numbers < len(record) {
		if numbers != counted {
			return false, hints.Add(f.at(in, oddField, "the first line is neither samples nor column names: %q is not a number, but others are", record[oddField]),
				"begin the file with a line of column names, or with a sample")
		}
		if err := f.setNames(in, record); err != nil {
			return false, err
		}
	}
	if err := f.findTarget(in, rules.target); err != nil {
		return false, err
	}
	if rules.like != nil {
		if err := f.checkLike(in, rules.like); err != nil {
			return false, err
		}
	}
	return f.names != nil, nil
}

// setNames sets the names of the columns from the header.
func (f *csvFile) setNames(in *csv.Reader, record []string) error {
	columns := make(map[string]int, len(record)) // by name, from 0
	for i, name := range record {
		if name == "" {
			return hints.Add(f.at(in, i, "column %d has no name", i+1),
				"remove the row numbers: in pandas, write the file with to_csv(..., index=False)")
		}
		if j, exists := columns[name]; exists {
			return f.at(in, i, "column %d has the name %q of column %d", i+1, name, j+1)
		}
		columns[name] = i
	}
	f.names = slices.Clone(record)
	f.header, _ = in.FieldPos(0)
	return nil
}

// findTarget sets the column to predict.
func (f *csvFile) findTarget(in *csv.Reader, target string) error {
	f.target = f.inputs
	if target == "" {
		return nil
	}
	if f.names != nil {
		if f.target = slices.Index(f.names, target); f.target < 0 {
			return hints.Add(f.at(in, 0, "no column %q to predict", target), "columns are: "+abridge(f.names))
		}
		return nil
	}
	number, err := strconv.Atoi(target)
	if err != nil || number < 1 || number > f.inputs+1 {
		return hints.Add(f.at(in, 0, "no column %q to predict: the file has no line of column names", target),
			"give the number of the column, 1 to "+strconv.Itoa(f.inputs+1)+", or add a line of column names")
	}
	f.target = number - 1
	return nil
}

// checkLike returns an error unless the columns equal the training file's.
func (f *csvFile) checkLike(in *csv.Reader, like *csvFile) error {
	if f.inputs != like.inputs {
		return f.at(in, 0, "%d columns, but %q has %d", f.inputs+1, like.path, like.inputs+1)
	}
	if f.names == nil || like.names == nil {
		return nil
	}
	for i, name := range f.names {
		if name != like.names[i] {
			return f.at(in, i, "column %d is %q, but in %q it is %q", i+1, name, like.path, like.names[i])
		}
	}
	return nil
}

// abridge lists names, omitting some if there are many.
func abridge(names []string) string {
	const most = 12
	if len(names) > most {
		return strings.Join(names[:most-1], ", ") + ", ..., " + names[len(names)-1]
	}
	return strings.Join(names, ", ")
}

// skipBOM drops the byte order mark that spreadsheets write at the start of UTF-8.
func skipBOM(r io.Reader) io.Reader {
	buffered := bufio.NewReader(r)
	mark := []byte("\xef\xbb\xbf")
	if head, _ := buffered.Peek(len(mark)); bytes.Equal(head, mark) {
		buffered.Discard(len(mark))
	}
	return buffered
}
