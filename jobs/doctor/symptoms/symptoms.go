// Package symptoms knows failures by the texts that NCCL, Gloo, PyTorch, CUDA, MPI,
// Slurm and the kernel leave in logs: for each the cause and what to do.
//
// It promises that of the failures in a log that which comes first in causes comes
// first, whatever was printed first: a rank that was killed before the time-outs of those
// that waited for it. It reads logs of any size and form, line by line, and keeps a few
// places of each symptom. It does not understand logs: a text that stands there for
// another reason is taken for the failure, and one that is not in the table is not found.
package symptoms

import (
	"bufio"
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

// rank is how near to the cause a symptom is.
type rank int

const (
	cause       rank = iota // why the job failed
	likely                  // why, as a rule; sometimes what follows
	consequence             // what others see of it: time-outs, connections that end
	aftermath               // what the launcher says in the end
)

// Symptom is a known text in a log.
type Symptom struct {
	Name  string // short, such as "cuda out of memory"
	From  string // whose text it is
	Cause string // what it means
	Hint  string // what to do

	rank    rank
	pattern *regexp.Regexp
	words   []string // see words
	sample  string   // a line as it is printed, for the tests and the documents
}

// Found is a symptom in a log.
type Found struct {
	Symptom
	Lines []int  // where, from 1; the first few
	Count int    // how many lines
	Text  string // the first of them, without what could steer a terminal
}

// Consequence says that this is what others see of a failure, and no cause.
func (f Found) Consequence() bool { return f.rank >= consequence }

// Where says on which lines it stands: "line 7", "lines 7, 9 and 12 more".
func (f Found) Where() string {
	if f.Count == 1 {
		return fmt.Sprintf("line %d", f.Lines[0])
	}
	numbers := make([]string, len(f.Lines))
	for i, n := range f.Lines {
		numbers[i] = strconv.Itoa(n)
	}
	text := "lines " + strings.Join(numbers, ", ")
	if more := f.Count - len(f.Lines); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

const (
	maxLine  = 64 << 10 // of a line; what is behind is not looked at
	maxText  = 300      // of a line that is shown, in bytes
	fewLines = 5
)

// Look returns the symptoms in a log, likely causes first, and how many lines it has.
func Look(log io.Reader) (found []Found, lines int, err error) {
	at := map[*Symptom]int{}
	r := bufio.NewReaderSize(log, maxLine)
	for {
		line, err := r.ReadSlice('\n')
		if len(line) > 0 {
			lines++
			examine(line, lines, &found, at)
		}
		for errors.Is(err, bufio.ErrBufferFull) { // the rest of a long line
			_, err = r.ReadSlice('\n')
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return found, lines, err
		}
	}
	slices.SortStableFunc(found, func(a, b Found) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.Lines[0], b.Lines[0]))
	})
	return found, lines, nil
}

// examine adds a line to the first symptom of the table that matches it.
func examine(line []byte, number int, found *[]Found, at map[*Symptom]int) {
	rows := scanner().find(line)
	if rows.isEmpty() {
		return
	}
	for i := range table {
		s := &table[i]
		if !rows.contains(i) || !s.pattern.Match(line) {
			continue
		}
		k, known := at[s]
		if !known {
			k = len(*found)
			at[s] = k
			*found = append(*found, Found{Symptom: *s, Text: shown(line)})
		}
		f := &(*found)[k]
		if f.Count++; len(f.Lines) < fewLines {
			f.Lines = append(f.Lines, number)
		}
		return
	}
}

// shown is a line for people.
func shown(line []byte) string {
	text := printable.Text(strings.ToValidUTF8(string(line), ""))
	if text = strings.TrimSpace(strings.ReplaceAll(text, "\t", " ")); len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + " ..."
	}
	return text
}

// All are the symptoms that are known, for documents.
func All() []Symptom { return slices.Clone(table) }
