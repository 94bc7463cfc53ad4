package watch

import (
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
)

const (
	maxTail  = 8 << 10 // bytes at the end of a log to search for its last line
	maxWords = 300     // maximum length of that line, in bytes
)

// unlaunched describes a job whose launcher never started. Its only clue is the last line that
// the batch script printed.
type unlaunched struct {
	dir   string
	words string
}

// Unlaunched returns why a job ended and what to do about it if its launcher never started.
// Typical causes are a module that does not exist, and a program or directory that the node
// does not see. Both results are empty if the launcher started.
func Unlaunched(d rundir.Dir, job slurm.JobState) (why, advice string) {
	return findUnlaunched(d, outcome.Read(d, job.ID)).explain(job.ExitCode)
}

// findUnlaunched returns nil if the launcher of the last job has started, or if the run has no
// job.
func findUnlaunched(d rundir.Dir, s outcome.State) *unlaunched {
	if s.Job == "" || slices.ContainsFunc(s.Attempts, func(a outcome.Attempt) bool { return a.JobID == s.Job }) {
		return nil
	}
	if s.End != nil && s.End.JobID == s.Job {
		return nil
	}
	return &unlaunched{d.Path, lastWords(d.BatchLog(s.Job))}
}

func (u *unlaunched) explain(exitCode string) (why, advice string) {
	switch code, signal, _ := strings.Cut(exitCode, ":"); {
	case u == nil:
		return "", ""
	case u.words == "" && signal == "53": // slurmstepd's exit signal if it cannot open the files of a job
		return "the first node could not begin it",
			"Slurm could not open the job's log: does each node see " + u.dir + " by this path, and may you write there?"
	case (code == "127" || code == "126") && (u.words == "" || strings.Contains(u.words, "ddpbatch")):
		advice = "the node could not run ddpbatch itself: is the program still where the last line of " + (rundir.Dir{Path: u.dir}).Script() + " names it, and does the node see it?"
	}
	why = "before any rank was started"
	if u.words != "" {
		why += ": " + u.words
	}
	return why, advice
}

// lastWords returns the last non-empty line of a log, without hints of ddpbatch. It returns an
// empty string if there is no such line.
func lastWords(path string) string {
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
		if len(line) > maxWords {
			cut := maxWords
			for !utf8.RuneStart(line[cut]) {
				cut--
			}
			line = line[:cut] + " ..."
		}
		return line
	}
	return ""
}
