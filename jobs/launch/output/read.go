package output

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/printable"
)

// An Open opens a file of an attempt for reading.
type Open func(name string) (*os.File, error)

// maxTail is the maximum number of bytes to read of a tail file. It exceeds a fourth of the largest
// limit.
const maxTail = 1 << 28

// tailPart is the content of a tail file.
type tailPart struct {
	offset int64
	text   []byte
}

// readTails returns the contents of the tail files in order.
func readTails(open Open, base string) (tails []tailPart, err error) {
	for _, name := range Parts(base)[1:] {
		f, err := open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(io.LimitReader(f, maxTail))
		f.Close()
		if err != nil {
			return nil, err
		}
		if offset, text, ok := parseTail(text); ok {
			tails = append(tails, tailPart{offset, text})
		}
	}
	slices.SortFunc(tails, func(a, b tailPart) int { return cmp.Compare(a.offset, b.offset) })
	return tails, nil
}

// openHead opens the first file of an output. End is the end of the output in it; the rest is a note
// if the file is full.
func openHead(open Open, base string, full bool) (f *os.File, end int64, err error) {
	if f, err = open(Parts(base)[0]); err != nil {
		return nil, 0, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if full {
		end, err = endOfHead(f)
		return f, end, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// Copy writes the whole output of a rank, or of a node, to w. A line stands for the part that was
// dropped because of the limit.
func Copy(w io.Writer, open Open, base string) error {
	tails, err := readTails(open, base)
	if err != nil {
		return err
	}
	f, end, err := openHead(open, base, len(tails) > 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.Copy(w, io.NewSectionReader(f, 0, end)); err != nil {
		return err
	}
	for _, t := range tails {
		if t.offset > end {
			if _, err := fmt.Fprintf(w, "\nddpbatch: %d bytes of output are missing here (command.output_limit)\n", t.offset-end); err != nil {
				return err
			}
		}
		if _, err := w.Write(t.text); err != nil {
			return err
		}
		end = t.offset + int64(len(t.text))
	}
	return nil
}

const (
	// maxLastBytes is the maximum number of bytes at the end of each file that LastLines searches.
	maxLastBytes = 64 << 10
	// maxLineBytes is the maximum length of a line that LastLines returns, in bytes.
	maxLineBytes = 300
)

// LastLines returns the last lines of the output of a rank, at most n, without control characters
// and empty lines. It keeps indentation.
func LastLines(open Open, base string, n int) (lines []string, err error) {
	tails, err := readTails(open, base)
	if err != nil {
		return nil, err
	}
	head, end, err := openHead(open, base, len(tails) > 0)
	if err != nil {
		return nil, err
	}
	defer head.Close()
	var text []byte
	if len(tails) == 0 || tails[0].offset <= end { // no output is missing between the files
		start := max(0, end-maxLastBytes)
		if text, err = io.ReadAll(io.NewSectionReader(head, start, end-start)); err != nil {
			return nil, err
		}
	}
	for _, t := range tails {
		text = append(text, t.text[max(0, len(t.text)-maxLastBytes):]...)
	}
	for _, line := range bytes.Split(text, []byte("\n")) {
		if at := bytes.LastIndexByte(bytes.TrimRight(line, "\r"), '\r'); at >= 0 {
			line = line[at+1:] // a progress bar: its last state
		}
		shown := printable.Verbatim(strings.ToValidUTF8(string(line), ""))
		if strings.TrimSpace(shown) == "" {
			continue
		}
		lines = append(lines, printable.Shorten(shown, maxLineBytes))
	}
	return lines[max(0, len(lines)-n):], nil
}
