package watch

import (
	"io"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
)

const (
	maxTail      = 8 << 10 // bytes at the end of a log to search for its last line
	maxLineBytes = 300     // maximum length of that line, in bytes
)

// launchFailure describes a job whose launcher never started. Its only clue is the last line that
// the batch script printed.
type launchFailure struct {
	dir      string
	lastLine string
}

// LaunchFailure returns why a job ended and what to do about it if its launcher never started.
// Typical causes are a module that does not exist, and a program or directory that the node
// does not see. Both results are empty if the launcher started. ExitCode is Slurm's exit code
// of the job.
func LaunchFailure(d rundir.Dir, s outcome.State, exitCode string) (why, advice string) {
	return findLaunchFailure(d, s).explain(exitCode)
}

// findLaunchFailure returns nil if the launcher of the last job has started, or if the run has no
// job.
func findLaunchFailure(d rundir.Dir, s outcome.State) *launchFailure {
	if s.Job == "" || slices.ContainsFunc(s.Attempts, func(a outcome.Attempt) bool { return a.JobID == s.Job }) {
		return nil
	}
	if s.End != nil && s.End.JobID == s.Job {
		return nil
	}
	return &launchFailure{d.Path, lastLogLine(d.BatchLog(s.Job))}
}

func (f *launchFailure) explain(exitCode string) (why, advice string) {
	switch code, signal, _ := strings.Cut(exitCode, ":"); {
	case f == nil:
		return "", ""
	case f.lastLine == "" && signal == "53": // slurmstepd's exit signal if it cannot open the files of a job
		return "the first node could not begin it",
			"Slurm could not open the job's log: check that each node sees " + f.dir + " by this path, and that you can write there"
	case (code == "127" || code == "126") && (f.lastLine == "" || strings.Contains(f.lastLine, "ddpbatch")):
		advice = "the node could not run ddpbatch: check that the node sees the program at the path in the last line of " + (rundir.Dir{Path: f.dir}).Script()
	}
	why = "before any rank was started"
	if f.lastLine != "" {
		why += ": " + f.lastLine
	}
	return why, advice
}

// lastLogLine returns the last non-empty line of a log, without hints of ddpbatch. It returns an
// empty string if there is no such line.
func lastLogLine(path string) string {
	f, err := rundir.OpenFile(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	text, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-maxTail), maxTail))
	if err != nil {
		return ""
	}
	for _, line := range slices.Backward(strings.Split(string(text), "\n")) {
		line = strings.TrimSpace(printable.Line(strings.ToValidUTF8(line, "")))
		if line == "" || strings.HasPrefix(line, "ddpbatch: hint:") {
			continue
		}
		return printable.Shorten(line, maxLineBytes)
	}
	return ""
}
