package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// Names of files about programs that hang.
const (
	evidenceName   = "evidence"
	heartbeatsName = "heartbeats"
	traceFiles     = "nccl_trace_rank_" // as PyTorch names them by default
)

// Evidence returns the directory with the evidence about an attempt that hung. Attempts of the
// run count from 1.
func (d Dir) Evidence(attempt int) string {
	return filepath.Join(d.Path, evidenceName, fmt.Sprintf("attempt-%04d", attempt))
}

// WriteEvidence writes a file of evidence about an attempt, and replaces an earlier one.
func (d Dir) WriteEvidence(attempt int, name string, content []byte) error {
	root, err := d.openEvidence(attempt)
	if err == nil {
		defer root.Close()
		var f *os.File
		if f, err = openToWrite(root, filepath.Join(d.Evidence(attempt), name), os.O_CREATE|os.O_TRUNC|os.O_WRONLY); err == nil {
			_, err = f.Write(content)
			err = errors.Join(err, f.Close())
		}
	}
	if err != nil {
		return fmt.Errorf("write %q: %w", filepath.Join(d.Evidence(attempt), name), err)
	}
	return nil
}

// openEvidence opens the directory with the evidence about an attempt, and creates it if necessary.
func (d Dir) openEvidence(attempt int) (*os.Root, error) {
	all, err := d.openSubdir(evidenceName)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	return openSubdir(all, filepath.Base(d.Evidence(attempt)))
}

// TracePrefix returns the prefix of the paths of PyTorch's flight-recorder dumps. PyTorch appends
// the rank.
func (d Dir) TracePrefix() string { return filepath.Join(d.Path, logsName, traceFiles) }

// MoveTraces moves PyTorch's flight-recorder dumps that were written since began into the evidence
// about an attempt. It returns their number. It is not an error if there are none.
func (d Dir) MoveTraces(attempt int, began time.Time) (n int, err error) {
	root, done, err := d.open()
	if err != nil {
		return 0, err
	}
	defer done()
	entries, err := safefile.ReadDirIn(root, logsName)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.Type().IsRegular() || !strings.HasPrefix(e.Name(), traceFiles) || info.ModTime().Before(began) {
			continue
		}
		if n == 0 {
			evidence, err := d.openEvidence(attempt)
			if err != nil {
				return 0, err
			}
			evidence.Close()
		}
		to := filepath.Join(evidenceName, filepath.Base(d.Evidence(attempt)), e.Name())
		if err := root.Rename(filepath.Join(logsName, e.Name()), to); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// Heartbeat returns the path of the file that a rank's program changes to show that it is alive.
func (d Dir) Heartbeat(rank int) string {
	return filepath.Join(d.Path, heartbeatsName, fmt.Sprintf("rank-%05d", rank))
}

// MakeHeartbeats creates the directory of the heartbeats.
func (d Dir) MakeHeartbeats() error { return d.mkdir(heartbeatsName) }
