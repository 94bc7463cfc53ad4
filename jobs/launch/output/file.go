package output

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A Dir opens the files of one attempt.
type Dir interface {
	// Create opens a file for writing, and creates it if necessary. It does not change its content.
	Create(name string) (*os.File, error)
}

// The three parts of the output of a rank. If the output exceeds its limit, the first part keeps
// the first half of the limit. The other parts take turns: each is overwritten when the other is
// full, because that costs much less CPU time than to write a new file.
const (
	headSuffix  = ".out"
	tailASuffix = ".tail-a.out"
	tailBSuffix = ".tail-b.out"
)

// Parts returns the names of the files with the output of a rank, a node, or a component. Base is the
// result of [RankBase], [NodeBase], or [ComponentBase]. The first file exists if there is any output.
// The order of the others follows from their first lines, see parseTail.
func Parts(base string) []string {
	return []string{base + headSuffix, base + tailASuffix, base + tailBSuffix}
}

// RankBase returns the common part of the names of the files of a rank.
func RankBase(rank int) string { return fmt.Sprintf("rank-%05d", rank) }

// NodeBase returns the common part of the names of the files of a node. They contain the output of
// torchrun itself, or of a node whose ranks cannot be distinguished.
func NodeBase(node int) string { return fmt.Sprintf("node-%05d", node) }

// componentPrefix is the prefix of the names of the files of components.
const componentPrefix = "component-"

// IsComponent reports whether a file has output of a component.
func IsComponent(file string) bool { return strings.HasPrefix(file, componentPrefix) }

// ComponentBase returns the common part of the names of the files of a component on a node, for its
// first start or for a restart, counted from 1.
func ComponentBase(name string, node, restart int) string {
	return fmt.Sprintf("%s%s.%05d.%d", componentPrefix, name, node, restart)
}

// ParseComponentBase returns the component, the node, and the restart of the first file of an
// output, and whether the name is the name of such a file.
func ParseComponentBase(file string) (name string, node, restart int, ok bool) {
	base, isHead := strings.CutSuffix(file, headSuffix)
	base, isComponent := strings.CutPrefix(base, componentPrefix)
	parts := strings.Split(base, ".")
	if !isHead || !isComponent || len(parts) != 3 {
		return "", 0, 0, false
	}
	node, err := strconv.Atoi(parts[1])
	restart, err2 := strconv.Atoi(parts[2])
	return parts[0], node, restart, err == nil && err2 == nil && node >= 0 && restart >= 0
}

// ParseBase returns the rank or the node of the first file of an output, and whether the name is
// the name of such a file.
func ParseBase(name string) (number int, rank, ok bool) {
	base, isHead := strings.CutSuffix(name, headSuffix)
	digits, rank := strings.CutPrefix(base, "rank-")
	if !rank {
		if digits, ok = strings.CutPrefix(base, "node-"); !ok {
			return 0, false, false
		}
	}
	number, err := strconv.Atoi(digits)
	return number, rank, isHead && err == nil && number >= 0
}

const (
	tailHeader = "ddpbatch: continues at byte "
	// tailEnd separates the output in a tail file from older output that is not yet overwritten.
	tailEnd = "\nddpbatch: end of the newest output; older output follows\n"
	headEnd = "\nddpbatch: the limit of this file is reached; the newest output is in "
)

// parseTail returns the output in a tail file, and the offset of its first byte in the whole output.
func parseTail(text []byte) (offset int64, output []byte, ok bool) {
	offset, rest, ok := parseHeader(text)
	output, _, _ = bytes.Cut(rest, []byte(tailEnd))
	return offset, output, ok
}

// parseHeader returns the offset in the first line of a tail file, and the text after this line.
func parseHeader(text []byte) (offset int64, rest []byte, ok bool) {
	line, rest, ended := bytes.Cut(text, []byte("\n"))
	digits, found := bytes.CutPrefix(line, []byte(tailHeader))
	offset, err := strconv.ParseInt(string(digits), 10, 64)
	return offset, rest, ended && found && err == nil && offset >= 0
}

// endOfHead returns the end of the output in a first file that may have reached its limit.
func endOfHead(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	end := info.Size()
	note := make([]byte, min(end, 512))
	n, err := f.ReadAt(note, end-int64(len(note)))
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	return end - int64(n-len(cutHead(note[:n]))), nil
}

// cutHead removes the last line of a first file that has reached its limit.
func cutHead(text []byte) []byte {
	at := bytes.LastIndex(text, []byte(headEnd))
	if at < 0 || bytes.Count(text[at:], []byte("\n")) != 2 {
		return text
	}
	return text[:at]
}

// A rankFile is the file with the output of a rank. It opens its files at the first write. It
// keeps about limit bytes: the start of the output, and its end in two more files.
type rankFile struct {
	dir   Dir
	base  string
	limit int64

	head  *os.File
	tails [2]*os.File
	turn  int   // index in tails of the file that is written; -1 for head
	at    int64 // position in the file that is written
	all   int64 // bytes of output so far
}

// Write appends b to the output.
func (r *rankFile) Write(b []byte) (n int, err error) {
	if err := r.open(); err != nil {
		return 0, err
	}
	for len(b) > 0 {
		space := r.limit/2 - r.at
		if r.turn >= 0 {
			space = r.limit/4 - r.at
		}
		part := b
		if int64(len(b)) > space {
			part = b[:max(space, 0)]
			part = part[:lastLineEnd(part)] // a file ends at the end of a line, if possible
			if len(part) == 0 && r.at < r.limit/8 {
				part = b[:space]
			}
		}
		end := ""
		if r.turn >= 0 && len(part) == len(b) {
			end = tailEnd
		}
		written, err := writeAt(r.file(), r.at, part, end)
		n, r.at, r.all = n+written, r.at+int64(written), r.all+int64(written)
		if err != nil {
			return n, err
		}
		if b = b[written:]; len(b) > 0 {
			if err := r.next(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// writeAt writes b and then end, usually in one system call. It returns how many bytes of b were
// written.
func writeAt(f *os.File, at int64, b []byte, end string) (n int, err error) {
	if end == "" || len(b) == 0 {
		return f.WriteAt(b, at)
	}
	_ = control(f, func(fd int) error {
		n, _ = unix.Pwritev(fd, [][]byte{b, []byte(end)}, at)
		return nil
	})
	if n = max(n, 0); n >= len(b)+len(end) {
		return len(b), nil
	}
	// The write failed or was partial. Write the rest, which also returns the error.
	n = min(n, len(b))
	rest, err := f.WriteAt(b[n:], at+int64(n))
	if n += rest; err == nil {
		_, err = f.WriteAt([]byte(end), at+int64(n))
	}
	return n, err
}

func (r *rankFile) file() *os.File {
	if r.turn < 0 {
		return r.head
	}
	return r.tails[r.turn]
}

func (r *rankFile) open() error {
	if r.head != nil {
		return nil
	}
	f, err := r.dir.Create(r.base + headSuffix)
	if err != nil {
		return err
	}
	if r.at, err = f.Seek(0, io.SeekEnd); err != nil { // of an earlier start of the same attempt
		f.Close()
		return err
	}
	r.head, r.turn, r.all = f, -1, r.at
	return nil
}

// next ends the file that is full, and begins the next one.
func (r *rankFile) next() error {
	turn := (r.turn + 1) % 2
	if r.tails[turn] == nil {
		f, err := r.dir.Create(r.base + []string{tailASuffix, tailBSuffix}[turn])
		if err != nil {
			return err
		}
		r.tails[turn] = f
	}
	var err error
	if r.turn < 0 {
		_, err = fmt.Fprintf(io.NewOffsetWriter(r.head, r.at), "%s%s.tail-*%s\n", headEnd, r.base, headSuffix)
	} else {
		err = r.file().Truncate(r.at)
	}
	if err != nil {
		return err
	}
	header := fmt.Sprintf("%s%d\n", tailHeader, r.all)
	if _, err := r.tails[turn].WriteAt([]byte(header+tailEnd), 0); err != nil {
		return err
	}
	r.turn, r.at = turn, int64(len(header))
	return nil
}

// close closes the files. It removes older output behind the newest output.
func (r *rankFile) close() {
	if r.head == nil {
		return
	}
	if r.turn >= 0 {
		_ = r.file().Truncate(r.at) // otherwise readers find the end by its line
	}
	for _, f := range []*os.File{r.head, r.tails[0], r.tails[1]} {
		if f != nil {
			f.Close()
		}
	}
}
