package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/lazyregexp"
	"github.com/ddpbatch/ddpbatch/internal/printable"
)

// A SubmitRequest is a batch script to submit.
type SubmitRequest struct {
	// Script is the absolute path of the script. sbatch reads it once, and
	// `scontrol show job` shows the path as the job's command.
	Script string

	// Text is the content of the script. If it is set, sbatch reads the script from its
	// standard input, so no other process can replace the file before sbatch opens it.
	// The job has no command then.
	Text []byte

	// Dir is the working directory of the job; empty for the caller's.
	Dir string

	// Comment is stored with the job, where [Client.FindByComment] finds it; empty for
	// none. A unique comment makes it safe to repeat a submission.
	Comment string

	// Note is additional text in the job's comment, after Comment and a space; empty for none.
	// It requires Comment.
	Note string

	// Dependencies must all be satisfied before the job starts.
	Dependencies []Dependency
}

// Submit submits a batch script and returns the ID of the job or of the job array.
//
// The job inherits the client's environment without the variables that [Scrub] removes.
// If Submit returns an error, a job may exist nevertheless: see [MaybeSubmitted].
func (c Client) Submit(ctx context.Context, req SubmitRequest) (jobID string, err error) {
	argv, err := req.argv()
	if err == nil {
		var out string
		var stdin io.Reader
		if req.Text != nil {
			stdin = bytes.NewReader(req.Text)
		}
		if out, _, err = c.runWithInput(ctx, req.Dir, stdin, argv...); err == nil {
			jobID, err = parseSubmitted(out)
		}
	}
	if err != nil {
		return "", fmt.Errorf("submit %q: %w", req.Script, err)
	}
	return jobID, nil
}

// argv returns the command line of sbatch.
func (r SubmitRequest) argv() ([]string, error) {
	if !filepath.IsAbs(r.Script) {
		return nil, errors.New("the path is not absolute")
	}
	argv := []string{"sbatch", "--parsable"}
	if r.Comment != "" {
		if err := checkComment(r.Comment); err != nil {
			return nil, err
		}
		comment := r.Comment
		if r.Note != "" {
			comment += " " + r.Note
		}
		if err := checkComment(comment); err != nil {
			return nil, err
		}
		argv = append(argv, "--comment="+comment)
	}
	if len(r.Dependencies) > 0 {
		option, err := dependencyOption(r.Dependencies)
		if err != nil {
			return nil, err
		}
		argv = append(argv, option)
	}
	if r.Text == nil {
		argv = append(argv, r.Script)
	}
	return argv, nil
}

// checkComment accepts comments that squeue prints unchanged on one line.
func checkComment(comment string) error {
	if comment == "" || strings.TrimSpace(comment) != comment {
		return fmt.Errorf("comment %q: must not be empty, or start or end with a space", comment)
	}
	for _, r := range comment {
		if r < ' ' || r > '~' || r == '"' || r == '\'' {
			return fmt.Errorf("comment %q: invalid character %q: use printable ASCII characters except quotes", comment, r)
		}
	}
	return nil
}

// parseSubmitted returns the job ID in the output of sbatch --parsable: "123", or
// "123;cluster". Wrappers and plugins of a site may print other lines before it.
func parseSubmitted(out string) (string, error) {
	found := ""
	for line := range strings.Lines(out) {
		id, _, _ := strings.Cut(strings.TrimSpace(line), ";")
		if isID(id) {
			found = id
		}
	}
	if found == "" {
		return "", noIDError{output: out}
	}
	return found, nil
}

// A noIDError reports an sbatch that succeeded without printing a job ID.
type noIDError struct{ output string }

func (e noIDError) Error() string {
	if e.output == "" {
		return "sbatch succeeded but printed no job ID"
	}
	return "sbatch succeeded but printed no job ID: " + excerpt(e.output, 0)
}

// Hint returns how to avoid a second job.
func (e noIDError) Hint() string { return hintCheckQueue }

// A DependencyType is a condition on other jobs (sbatch(1), --dependency).
type DependencyType string

// Dependency types. For a job array, each means all of its tasks.
const (
	After      DependencyType = "after"      // the jobs have started or were canceled
	AfterAny   DependencyType = "afterany"   // the jobs have ended
	AfterOK    DependencyType = "afterok"    // the jobs have succeeded
	AfterNotOK DependencyType = "afternotok" // the jobs have failed
	Singleton  DependencyType = "singleton"  // all earlier jobs of the user with the same name have ended
)

// A Dependency makes a job wait for other jobs. On most clusters, a job stays pending
// indefinitely if its dependency can no longer be satisfied (DependencyNeverSatisfied).
// Submitting a failed job again does not satisfy an afterok on it.
type Dependency struct {
	Type DependencyType
	IDs  []string // jobs, job arrays, or array tasks: "18" or "18_3"; none for Singleton
}

// dependencyOption returns the option of sbatch that requires all dependencies.
func dependencyOption(dependencies []Dependency) (string, error) {
	var parts []string
	for _, d := range dependencies {
		switch d.Type {
		case After, AfterAny, AfterOK, AfterNotOK:
		case Singleton:
			if len(d.IDs) > 0 {
				return "", fmt.Errorf("dependency singleton: it has no job IDs")
			}
			parts = append(parts, string(Singleton))
			continue
		default:
			return "", fmt.Errorf("dependency %q: the types are after, afterany, afterok, afternotok, and singleton", d.Type)
		}
		if len(d.IDs) == 0 {
			return "", fmt.Errorf("dependency %s: no job ID", d.Type)
		}
		if err := checkIDs(d.IDs); err != nil {
			return "", fmt.Errorf("dependency %s: %w", d.Type, err)
		}
		parts = append(parts, string(d.Type)+":"+strings.Join(d.IDs, ":"))
	}
	return "--dependency=" + strings.Join(parts, ","), nil
}

// MaybeSubmitted reports whether a job may exist although Submit returned err. This is the
// case if sbatch timed out, was killed, lost the connection to the controller, or printed
// no job ID. Before you submit again, search for the job with [Client.FindByComment].
//
// It returns false if nothing was sent or if Slurm rejected the job. For unknown errors it
// returns true: an unnecessary search costs less than a second job.
func MaybeSubmitted(err error) bool {
	var failed *CommandError
	switch {
	case err == nil:
		return false
	case errors.As(err, new(noIDError)):
		return true
	case !errors.As(err, &failed):
		return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	case errors.Is(err, exec.ErrNotFound):
		return false
	case !GotReply(err):
		return true
	}
	// sbatch prints the text before each error code of the controller. Errors of the
	// connection are in noReplyErrors, so GotReply is false for them.
	_, rejected := findRejection(failed.Stderr)
	return !rejected && !strings.Contains(failed.Stderr, "Batch job submission failed: ")
}

// GotReply reports whether the controller had handled the request when a program failed
// with err. If so, squeue already lists a job that the request has made. Otherwise the
// controller may still be working on the request.
func GotReply(err error) bool {
	var failed *CommandError
	var exit *exec.ExitError
	if errors.As(err, new(noIDError)) {
		return true
	}
	if !errors.As(err, &failed) || !errors.As(failed.Err, &exit) || !exit.Exited() {
		return false
	}
	_, noReply := findAdvice(noReplyErrors, failed.Stderr)
	return !noReply
}

// commentFormat prints the comment last, because it may contain the separator.
const commentFormat = "JobID:0|,ArrayJobID:0|,ArrayTaskID:0|,HetJobID:0|,Comment:0"

// scriptFormat prints the script last. If the comment contains the separator, the line
// does not match any script.
const scriptFormat = commentFormat + "|,Command:0|,STDOUT:0"

// FindByComment returns the IDs of the user's jobs with this comment, or with this comment
// and a [SubmitRequest.Note], oldest first. It shows whether a submission without a reply
// made a job. It calls squeue once. Job arrays and heterogeneous jobs have one ID in the
// result.
//
// It finds jobs in any state until the controller forgets them, MinJobAge (300 s by
// default) after their end. It does not query accounting, because few clusters store
// comments there (AccountingStoreFlags=job_comment).
func (c Client) FindByComment(ctx context.Context, comment string) (ids []string, err error) {
	if err := checkComment(comment); err != nil {
		return nil, fmt.Errorf("find job: %w", err)
	}
	out, err := c.run(ctx, "", "squeue", "--noheader", "--states=all", "--me", "--Format="+commentFormat)
	if err != nil {
		return nil, fmt.Errorf("find job with comment %q: %w", comment, err)
	}
	is := func(f []string) bool {
		note, ok := strings.CutPrefix(strings.TrimRight(f[4], " "), comment)
		return ok && (note == "" || note[0] == ' ')
	}
	for _, job := range parseSubmittedJobs(out, 5, is) {
		ids = append(ids, job.ID)
	}
	return ids, nil
}

// A SubmittedJob is a job in the result of [Client.FindByScript].
type SubmittedJob struct {
	ID      string
	Comment string
}

// FindByScript returns the user's jobs whose batch script has this path, oldest first. Their
// output must be in the directory of the script or below it. It also returns jobs with such
// an output whose script has no path, see SubmitRequest.Text. Like [Client.FindByComment],
// it finds only jobs that the controller remembers.
func (c Client) FindByScript(ctx context.Context, path string) (found []SubmittedJob, err error) {
	out, err := c.run(ctx, "", "squeue", "--noheader", "--states=all", "--me", "--Format="+scriptFormat)
	if err != nil {
		return nil, fmt.Errorf("find jobs of script %q: %w", path, err)
	}
	// Older versions of Slurm print the pattern of the output, where %% is a percent sign.
	dir := filepath.Dir(path) + "/"
	pattern := strings.ReplaceAll(dir, "%", "%%")
	return parseSubmittedJobs(out, 6, func(f []string) bool {
		for _, command := range []string{path, "(null)"} {
			output, ok := strings.CutPrefix(f[5], command+"|")
			if ok && (strings.HasPrefix(output, dir) || strings.HasPrefix(output, pattern)) {
				return true
			}
		}
		return false
	}), nil
}

// parseSubmittedJobs returns the jobs of the lines that have n columns and that the function
// is accepts, oldest first. The first five columns are those of commentFormat.
func parseSubmittedJobs(out string, n int, is func(fields []string) bool) (found []SubmittedJob) {
	for line := range strings.Lines(out) {
		f := strings.SplitN(strings.TrimRight(line, "\n"), "|", n)
		if len(f) < n || !is(f) {
			continue
		}
		if id := submittedID(f); id != "" {
			found = append(found, SubmittedJob{ID: id, Comment: strings.TrimRight(f[4], " ")})
		}
	}
	slices.SortFunc(found, func(a, b SubmittedJob) int { return CompareIDs(a.ID, b.ID) })
	return slices.CompactFunc(found, func(a, b SubmittedJob) bool { return a.ID == b.ID })
}

// submittedID returns the ID that sbatch printed for the job of a line: the ID of the job,
// the job array, or the first component of the heterogeneous job. It returns "" if the
// line is invalid.
func submittedID(fields []string) string {
	id := strings.TrimSpace(fields[0])
	if valueOrEmpty(fields[2]) != "" {
		id = strings.TrimSpace(fields[1])
	} else if leader := valueOrEmpty(fields[3]); leader != "" && leader != "0" {
		id = leader
	}
	if !isID(id) {
		return ""
	}
	return id
}

// A Forecast is the reply of sbatch --test-only to a job that Slurm accepts. Unknown fields
// are empty.
type Forecast struct {
	Start     time.Time // expected start, local time; zero if the estimate is not usable
	CPUs      int
	Nodes     string // node list
	Partition string
	Text      string // sbatch's output, including warnings
}

// maxForecast limits estimates to a plausible range. Slurm returns years such as 3047 if it
// has found no end for the jobs before this one.
const maxForecast = 5 * 365 * 24 * time.Hour

// TestOnly checks whether Slurm accepts a script. It passes the script on standard input,
// so it writes no file. dir is the working directory, as in [SubmitRequest]. If Slurm
// rejects the script, the error is a [*CommandError] with a hint.
func (c Client) TestOnly(ctx context.Context, script []byte, dir string) (Forecast, error) {
	stdout, stderr, err := c.runWithInput(ctx, dir, bytes.NewReader(script), "sbatch", "--test-only")
	if err != nil {
		return Forecast{}, fmt.Errorf("test script: %w", err)
	}
	return parseForecast(stdout+stderr, time.Now()), nil // sbatch prints the forecast on stderr
}

// forecastLine is the reply of sbatch: with nodes and partition since 17.11, and with a
// cluster in a federation.
var forecastLine = lazyregexp.New(`\bJob \d+ to start at (\S+)(?: on cluster \S+)? using (\d+) processors on (?:nodes )?(\S+)(?: in partition (\S+))?`)

// parseForecast parses the reply. For a heterogeneous job, which has a line for each
// component, it returns the latest start and the sum of the CPUs.
func parseForecast(output string, now time.Time) Forecast {
	var f Forecast
	var lines, nodes []string
	usable := true
	for line := range strings.Lines(output) {
		line = strings.TrimPrefix(printable.Line(line), "sbatch: ")
		if line == "" {
			continue
		}
		lines = append(lines, line)
		m := forecastLine().FindStringSubmatch(line)
		if m == nil {
			continue
		}
		start, err := time.ParseInLocation("2006-01-02T15:04:05", m[1], time.Local)
		usable = usable && err == nil && start.Sub(now) <= maxForecast
		if start.After(f.Start) {
			f.Start = start
		}
		if n, err := parseCount(m[2]); err == nil && f.CPUs+n <= maxCount {
			f.CPUs += n
		}
		nodes = append(nodes, m[3])
		f.Partition = m[4]
	}
	if !usable {
		f.Start = time.Time{}
	}
	f.Nodes = strings.Join(nodes, ",")
	f.Text = strings.Join(lines, "\n")
	return f
}
