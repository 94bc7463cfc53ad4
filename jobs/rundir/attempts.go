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
	// maxAttempts is the number of bytes to read from the end of attempts.jsonl.
	maxAttempts = 8 << 20
	// maxEvents is the number of events to retain in memory, counted from the end of the file.
	// A line in the file can be much smaller than an event in memory.
	maxEvents = 20_000
	// minEvent is the length of the shortest event. The JSON decoder would need much time for millions of
	// shorter lines.
	minEvent = len(`{"event":"x"}`)
)

// Values of Event in [AttemptEvent].
const (
	AttemptBegan = "begin"
	AttemptEnded = "end"
	JobRequeued  = "requeue" // the launcher requeued its job
)

// An AttemptEvent is one line of attempts.jsonl, the chronological history of attempts of all
// launchers. If an attempt has a begin event but no end event, it was killed together with its
// launcher.
type AttemptEvent struct {
	Event    string    `json:"event"`
	Time     time.Time `json:"time"`
	JobID    string    `json:"job_id,omitempty"`
	Requeues int       `json:"requeues"` // number of earlier requeues by Slurm
	Attempt  int       `json:"attempt"`  // attempt number within its launcher, from 1
	Hosts    string    `json:"hosts,omitempty"`
	Ranks    int       `json:"ranks,omitempty"`
	// TasksPerNode has the number of ranks on each host, such as "4,2(x3)", if it is not equal on
	// all hosts.
	TasksPerNode string `json:"tasks_per_node,omitempty"`
	Code         *Code  `json:"code,omitempty"` // user's program, only in begin events of runs without a recorded submission

	// Fields of end events.
	Exit    int    `json:"exit"`
	Stopped bool   `json:"stopped,omitempty"` // whether the ranks stopped on request
	Step    int    `json:"step"`              // last step that a rank reported
	Cause   string `json:"cause,omitempty"`   // failure or reason for the stop request; empty if the run finished
	Rank    *int   `json:"rank,omitempty"`    // rank that caused the failure
	Host    string `json:"host,omitempty"`    // host of Rank
	Again   bool   `json:"again,omitempty"`   // whether the launcher starts another attempt
	// NoProgress reports that a user's program received a stop request but did not handle the
	// signal, so it saved nothing in response.
	NoProgress bool `json:"no_progress,omitempty"`
	// ReportedSave reports that a user's program received a stop request and ended with an exit code
	// that means that it has saved.
	ReportedSave bool `json:"reported_save,omitempty"`
	// NotStarted reports that a stop was requested while components started, before a user's program.
	NotStarted bool `json:"not_started,omitempty"`
	// PortTaken reports that the launcher starts another attempt because another process had the
	// port of the program. That attempt is not a restart of the program.
	PortTaken bool `json:"port_taken,omitempty"`
}

// Attempts returns the path of attempts.jsonl, the history of attempts.
func (d Dir) Attempts() string { return filepath.Join(d.Path, attemptsName) }

// AppendAttempt appends e to the history of attempts. If the last line is incomplete, it
// starts a new line: the launcher may have been killed, or the disk may have been full.
func (d Dir) AppendAttempt(e AttemptEvent) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, err := d.openToWrite(attemptsName, os.O_CREATE|os.O_APPEND|os.O_RDWR)
	if err != nil {
		return fmt.Errorf("record an attempt: %w", err)
	}
	text = append(text, '\n')
	if endsMidLine(f) {
		text = append([]byte{'\n'}, text...)
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("record an attempt: %w", err)
	}
	return nil
}

// endsMidLine reports whether the last line of f is incomplete.
func endsMidLine(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return false
	}
	var last [1]byte
	_, err = f.ReadAt(last[:], info.Size()-1)
	return err == nil && last[0] != '\n'
}

// ReadAttempts returns the last events of the history, in file order. It returns no events if
// the file does not exist, and it skips invalid lines. At a line of more than 1 MiB, it returns the
// events before the line and an error.
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
		lines.Scan() // skip a partial line
	}
	var last []AttemptEvent
	for lines.Scan() {
		if len(lines.Bytes()) < minEvent {
			continue
		}
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
