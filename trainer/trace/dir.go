package trace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/format"
)

// A CorruptFile is a recording that [ReadDir] could not read, or only in part.
type CorruptFile struct {
	Name    string // of the file
	Partial bool   // the result has the spans before the corruption
	Err     error
}

// Limits for all recordings in a directory of another user, which can be links to one file: their
// size in bytes, and their number of spans.
const maxForeignTraces, maxForeignSpans = 2 << 30, 40_000_000

// ReadDir reads the recordings of all ranks in a directory, which may be missing. The function open
// opens a file in it. If isForeign is set, another user owns the directory, and the recordings have a
// limited size and number of spans. ReadDir returns the corrupt recordings also with an error.
func ReadDir(dir string, isForeign bool, open func(name string) (*os.File, error)) (all []*Recording, corrupt []CorruptFile, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	size, spans := int64(0), 0
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "rank-") {
			continue // a temporary file of a rank that is still writing
		}
		if info, err := e.Info(); err == nil {
			size += info.Size()
		}
		if isForeign && size > maxForeignTraces {
			return nil, corrupt, fmt.Errorf("the recordings in %q belong to another user, and have more than %s", dir, format.Bytes(maxForeignTraces))
		}
		r, err := readFile(open, e.Name())
		if err != nil {
			corrupt = append(corrupt, CorruptFile{e.Name(), r != nil, err})
		}
		if r != nil {
			all = append(all, r)
			spans += len(r.Spans)
		}
		if isForeign && spans > maxForeignSpans {
			return nil, corrupt, fmt.Errorf("the recordings in %q belong to another user, and have more than %d spans", dir, maxForeignSpans)
		}
	}
	return all, corrupt, nil
}

func readFile(open func(string) (*os.File, error), name string) (*Recording, error) {
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(f)
}
