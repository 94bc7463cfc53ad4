package rundir

import (
	"io"
	"os"
)

// ReadSome reads a file of a run directory, of which no more than so many bytes are taken:
// a larger one is not what ddpbatch has written.
func ReadSome(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}
