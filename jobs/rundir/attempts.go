package rundir

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	// maxAttempts is the number of bytes that are read at the end of attempts.jsonl.
	maxAttempts = 8 << 20
	// maxEvents is the number of events that are kept in memory, the last ones of the file.
	// A line of the file can be much smaller than an event in memory.
	maxEvents = 20_000
)

// What an [AttemptEvent] tells.
const (
	AttemptBegan = "begin"
	AttemptEnded = "end"
	JobRequeued  = "requeue" // the launcher has put its job back into the queue
)

// AttemptEvent is one line of attempts.jsonl, which keeps what has become of each
// attempt of each launcher, in order. One that began and did not end was killed
// together with its launcher.
type AttemptEvent struct {
	Event    string    `json:"event"`
	Time     time.Time `json:"time"`
	JobID    string    `json:"job_id,omitempty"`
	Requeues int       `json:"requeues"` // how often Slurm had put the job back before
	Attempt  int       `json:"attempt"`  // counted from 1 in each launcher
	Hosts    string    `json:"hosts,omitempty"`
	Ranks    int       `json:"ranks,omitempty"`
	Code     *Code     `json:"code,omitempty"` // of a beginning: the user's program, where no submission has recorded it

	// Of an end.
	Exit    int    `json:"exit"`
	Stopped bool   `json:"stopped,omitempty"` // the ranks were asked to stop, and did
	Step    int    `json:"step"`              // the last step that a rank has reported
	Cause   string `json:"cause,omitempty"`   // what went wrong, or why it was asked to stop; empty if it finished
	Rank    *int   `json:"rank,omitempty"`    // that is the cause
	Host    string `json:"host,omitempty"`    // its host
	Again   bool   `json:"again,omitempty"`   // the launcher starts another attempt
	// NoProgress reports that a user's program was asked to stop and did not handle the
	// signal, so it saved nothing because of it.
	NoProgress bool `json:"no_progress,omitempty"`
}

// Attempts is the file that keeps what has become of each attempt.
func (d Dir) Attempts() string { return filepath.Join(d.Path, attemptsName) }

// AppendAttempt adds a line, also behind one that has no end: its launcher was killed, or
// the disk was full.
func (d Dir) AppendAttempt(e AttemptEvent) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, err := d.openToWrite(attemptsName, os.O_CREATE|os.O_APPEND|os.O_RDWR)
	if err != nil {
		return fmt.Errorf("keep what became of an attempt: %w", err)
	}
	text = append(text, '\n')
	if torn(f) {
		text = append([]byte{'\n'}, text...)
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("keep what became of an attempt: %w", err)
	}
	return nil
}

// torn says whether the last line of a file has no end.
func torn(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return false
	}
	var last [1]byte
	_, err = f.ReadAt(last[:], info.Size()-1)
	return err == nil && last[0] != '\n'
}

// ReadAttempts returns the last events of the file, in order. It returns none if there is no
// file, and skips lines that it cannot read.
func (d Dir) ReadAttempts() ([]AttemptEvent, error) {
	f, err := d.openFile(attemptsName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var events []AttemptEvent
	if err == nil {
		defer f.Close()
		events, err = readAttempts(f)
	}
	if err != nil {
		err = fmt.Errorf("read %q: %w", d.Attempts(), err)
	}
	return events, err
}

func readAttempts(f *os.File) ([]AttemptEvent, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	start := max(0, info.Size()-maxAttempts)
	lines := bufio.NewScanner(io.NewSectionReader(f, start, maxAttempts))
	lines.Buffer(nil, 1<<20)
	if start > 0 {
		lines.Scan() // the rest of a line
	}
	var last []AttemptEvent
	for lines.Scan() {
		var e AttemptEvent
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.Event == "" {
			continue
		}
		if len(last) == 2*maxEvents {
			last = append(last[:0], last[maxEvents:]...)
		}
		last = append(last, e)
	}
	return last[max(0, len(last)-maxEvents):], lines.Err()
}
