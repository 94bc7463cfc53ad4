// Package symptoms finds known failures in logs. It recognizes messages of NCCL, Gloo,
// PyTorch, CUDA, MPI, Slurm, and the kernel. For each one it returns the cause and the fix.
//
// The package lists root causes before their consequences, regardless of the order in the log:
// a rank that was killed comes before the timeouts of the ranks that waited for it. It reads
// logs of any size and format line by line, and stores a few line numbers for each symptom.
//
// The package does not interpret logs. It reports a failure even if its text is in the log for
// another reason, and it does not find failures that are missing in its table.
package symptoms

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/printable"
)

// severity is the severity of a symptom: how close it is to the root cause.
type severity int

const (
	cause       severity = iota // root cause of the failure
	likely                      // usually the root cause, sometimes a consequence
	consequence                 // effect on other ranks, such as timeouts and closed connections
	aftermath                   // final messages of launchers
)

// A Symptom is a known message in a log.
type Symptom struct {
	Name  string // short name, such as "gpu out of memory"; in JSON output, so it must not change
	From  string // software that prints the message
	Cause string // what the message means
	Hint  string // how to fix it

	severity   severity
	expression string // matches the lines of pattern and context; for the search for words
	pattern    func() *regexp.Regexp
	context    func() *regexp.Regexp // a line that the log must also contain; nil for most symptoms
	sample     string                // a line as printed, for tests and documents
}

// A Found is a symptom that occurs in a log.
type Found struct {
	Symptom
	Lines []int  // line numbers, from 1; only the first few
	Count int    // number of lines
	Text  string // first of the lines, without control characters
	Rank  *int   // rank whose output has Lines; nil if the log has them
}

// IsConsequence reports whether the symptom is a consequence of another failure.
func (f Found) IsConsequence() bool { return f.severity >= consequence }

// IsAftermath reports whether the symptom is a final message of a launcher, such as srun. It only
// states that a rank failed.
func (f Found) IsAftermath() bool { return f.severity == aftermath }

// Where formats the line numbers, such as "line 7" or "lines 7, 9 and 12 more of the output of
// rank 3".
func (f Found) Where() string {
	numbers := make([]string, len(f.Lines))
	for i, n := range f.Lines {
		numbers[i] = strconv.Itoa(n)
	}
	text := "lines " + strings.Join(numbers, ", ")
	if f.Count == 1 {
		text = "line " + numbers[0]
	}
	if more := f.Count - len(f.Lines); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	if f.Rank != nil {
		text += fmt.Sprintf(" of the output of rank %d", *f.Rank)
	}
	return text
}

// diagnosisPrefix begins the lines in which ddpbatch itself explains a failure in a log. [Scan]
// ignores them.
const diagnosisPrefix = "ddpbatch: diagnosis: "

const (
	maxLine  = 64 << 10 // bytes of a line to search; the rest is ignored
	maxText  = 300      // bytes of a line to display
	maxLines = 5
)

// Scan returns the symptoms in a log, with likely causes first, and the number of lines of the
// log.
func Scan(log io.Reader) (found []Found, lines int, err error) {
	s := scan{index: map[string]int{}, contexts: map[string]bool{}}
	r := bufio.NewReaderSize(log, maxLine)
	for {
		line, err := r.ReadSlice('\n')
		if len(line) > 0 {
			lines++
		}
		if len(line) > 0 && !bytes.HasPrefix(line, []byte(diagnosisPrefix)) {
			s.add(line, lines)
		}
		for errors.Is(err, bufio.ErrBufferFull) { // skip the rest of a long line
			_, err = r.ReadSlice('\n')
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return s.found, lines, err
		}
	}
	found = slices.DeleteFunc(s.found, func(f Found) bool { return f.context != nil && !s.contexts[f.Name] })
	slices.SortStableFunc(found, func(a, b Found) int {
		return cmp.Or(cmp.Compare(a.severity, b.severity), cmp.Compare(a.Lines[0], b.Lines[0]))
	})
	return found, lines, nil
}

// Merge returns the symptoms in a log, and the symptoms in the output of a rank that the log lacks.
// Consequences of other failures are at the end.
func Merge(log, output []Found) []Found {
	merged := slices.Clone(log)
	for _, f := range output {
		if !slices.ContainsFunc(log, func(l Found) bool { return l.Name == f.Name }) {
			merged = append(merged, f)
		}
	}
	slices.SortStableFunc(merged, func(a, b Found) int {
		switch {
		case a.IsConsequence() == b.IsConsequence():
			return 0
		case a.IsConsequence():
			return 1
		}
		return -1
	})
	return merged
}

// A scan is the state of [Scan].
type scan struct {
	found    []Found
	index    map[string]int  // index in found, by name
	contexts map[string]bool // names of symptoms whose context is in the log
}

// add adds a line to the first symptom of the table that matches it, and marks the symptoms whose
// context it contains.
func (s *scan) add(line []byte, number int) {
	rows := scanner().find(line)
	if rows.isEmpty() {
		return
	}
	added := false
	for i := range table {
		symptom := &table[i]
		if !rows.contains(i) {
			continue
		}
		if symptom.context != nil && !s.contexts[symptom.Name] {
			s.contexts[symptom.Name] = symptom.context().Match(line)
		}
		if !added && symptom.pattern().Match(line) {
			s.count(symptom, line, number)
			added = true
		}
	}
}

// count adds a line to a symptom.
func (s *scan) count(symptom *Symptom, line []byte, number int) {
	k, known := s.index[symptom.Name]
	if !known {
		k = len(s.found)
		s.index[symptom.Name] = k
		s.found = append(s.found, Found{Symptom: *symptom, Text: displayText(line)})
	}
	f := &s.found[k]
	if f.Count++; len(f.Lines) < maxLines {
		f.Lines = append(f.Lines, number)
	}
}

// displayText returns a line for display: without control characters, and truncated to maxText
// bytes.
func displayText(line []byte) string {
	text := printable.Text(strings.ToValidUTF8(string(line), ""))
	return printable.Shorten(strings.TrimSpace(strings.ReplaceAll(text, "\t", " ")), maxText)
}
