package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// Names of files for a user's program.
const (
	programCheckpointsName = "program-checkpoints"
	stopName               = "stop-requested"
	trackerIDPrefix        = "run-id-" // followed by the name of the tracker
)

// maxTrackerID is the maximum size in bytes of a file with the ID of a tracker.
const maxTrackerID = 256

// ProgramCheckpoints returns the path of the default directory for checkpoints of a user's
// program.
func (d Dir) ProgramCheckpoints() string { return filepath.Join(d.Path, programCheckpointsName) }

// MakeProgramCheckpoints creates the default directory for checkpoints of a user's program.
func (d Dir) MakeProgramCheckpoints() error { return d.mkdir(programCheckpointsName) }

// StopFile returns the path of the file that exists while the program is requested to stop.
func (d Dir) StopFile() string { return filepath.Join(d.Path, stopName) }

// WriteStopFile creates the stop file. Reason is its only line.
func (d Dir) WriteStopFile(reason string) error { return d.write(stopName, []byte(reason+"\n")) }

// RemoveStopFile removes the stop file of an earlier attempt.
func (d Dir) RemoveStopFile() error { return d.remove(stopName) }

// TrackerFile returns the path of the file in which a program stores its ID at an experiment
// tracker.
func (d Dir) TrackerFile(tracker string) string {
	return filepath.Join(d.Path, trackerIDPrefix+tracker)
}

// ReadTrackerID returns the ID in the file of [Dir.TrackerFile]. It is empty if the file does
// not exist. An ID consists of letters, digits, "-", and "_".
func (d Dir) ReadTrackerID(tracker string) (string, error) {
	text, err := d.readFile(filepath.Base(d.TrackerFile(tracker)), maxTrackerID)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the ID of %s: %w", tracker, err)
	}
	id := strings.TrimSpace(string(text))
	invalid := strings.ContainsFunc(id, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '-' && r != '_'
	})
	if invalid || len(text) == maxTrackerID {
		return "", fmt.Errorf("read the ID of %s: %q does not contain an ID", tracker, d.TrackerFile(tracker))
	}
	return id, nil
}
