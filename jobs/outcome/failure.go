package outcome

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/capped"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// A Failure is the content of failure.json: how an attempt failed. The launcher writes it.
type Failure struct {
	JobID   string              `json:"job_id,omitempty"` // empty without Slurm
	Time    time.Time           `json:"time"`
	Attempt int                 `json:"attempt"`
	Exit    int                 `json:"exit"`
	First   *rendezvous.Failure `json:"first"`
	Ranks   RankStatuses        `json:"ranks"`

	// LastLines are the last lines that the program of the first rank printed.
	LastLines []string `json:"last_lines,omitempty"`
	Finding   *Finding `json:"finding,omitempty"` // nil if the log has no known failure
}

// A Finding is a known failure in the log of a failed attempt.
type Finding struct {
	Name  string `json:"name"`  // short name, such as "gpu out of memory"
	Cause string `json:"cause"` // what it means
	Hint  string `json:"hint"`  // how to fix it
	// Consequence reports that the message is a consequence of a failure elsewhere.
	Consequence bool `json:"consequence,omitempty"`
}

// maxLastLines is the maximum number of last lines.
const maxLastLines = 30

// IsOf reports whether the failure may belong to the given job. If a later job ended before its
// launcher started, failure.json still holds the failure of an earlier job.
func (f *Failure) IsOf(job string) bool { return f.JobID == job || f.JobID == "" || job == "" }

const (
	// maxFailure is the maximum number of bytes to read of failure.json. A file with 10,000
	// ranks and one message for each rank has 5 MB.
	maxFailure = 32 << 20
	// maxRanks is the maximum number of ranks in failure.json.
	maxRanks = 100_000
	// maxText is the maximum number of bytes of a last line and of the texts of a finding. The
	// launcher writes shorter texts.
	maxText = 1000
)

// RankStatuses holds the ranks in failure.json. Another user may own the file. A rank needs
// only 3 bytes in the file and much more in memory, so the number of ranks is limited.
type RankStatuses []rendezvous.RankStatus

// UnmarshalJSON decodes an array of at most maxRanks ranks.
func (s *RankStatuses) UnmarshalJSON(text []byte) (err error) {
	*s, err = capped.DecodeList[rendezvous.RankStatus](text, maxRanks)
	return err
}

// addFailure adds the first failure in the last attempt of the job. It adds nothing if the attempt
// did not fail, or if failure.json is not readable.
func (s *State) addFailure(dir rundir.Dir) {
	f, err := ReadFailure(dir)
	if err != nil || f == nil || !f.IsOf(s.Job) || f.First == nil || f.First.Reason == "" {
		return
	}
	s.Failure, s.LastLines, s.Finding = f.First, f.LastLines, f.Finding
}

// ReadFailure returns the content of failure.json in a run directory, or nil if there is no such
// file.
func ReadFailure(dir rundir.Dir) (*Failure, error) {
	file, err := dir.OpenPath(dir.Failure())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFailure))
	if err != nil {
		return nil, err
	}
	var f Failure
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("failure.json is damaged: %w", err)
	}
	f.LastLines = f.LastLines[max(0, len(f.LastLines)-maxLastLines):]
	for i, line := range f.LastLines {
		f.LastLines[i] = cutText(line)
	}
	if f.Finding != nil {
		for _, text := range []*string{&f.Finding.Name, &f.Finding.Cause, &f.Finding.Hint} {
			*text = cutText(*text)
		}
	}
	return &f, nil
}

// cutText returns the first bytes of a long text, at most maxText.
func cutText(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + " ..."
}
