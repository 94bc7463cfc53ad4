package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/launch/output"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/trainlog"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// envOutput is the number of the attempt whose directory receives the output of the program.
const envOutput = "DDPBATCH_OUTPUT_ATTEMPT"

// maxOutputAttempts is the number of attempts whose output is retained.
const maxOutputAttempts = 5

// prepareOutput removes the output of old attempts. It returns the number of the next attempt.
func (o Options) prepareOutput() (attempt int) {
	if err := o.Dir.RemoveOldOutput(maxOutputAttempts - 1); err != nil {
		o.Say(fmt.Sprintf("warning: %v", err))
	}
	attempt = nextAttempt(o.Dir)
	if o.Job.Command.Output == jobs.OutputPerRank {
		o.Say("each rank writes its output to a file in " + o.Dir.RankOutput(attempt))
	}
	return attempt
}

// nextAttempt returns the number of the next attempt across all launchers, from 1.
func nextAttempt(d rundir.Dir) int {
	next := 1
	events, _ := d.ReadAttempts()
	for _, e := range events {
		if e.Event == rundir.AttemptBegan {
			next++
		}
	}
	// Output is never appended to the output of another attempt, even without its record.
	if kept, err := d.OutputAttempts(); err == nil && len(kept) > 0 {
		next = max(next, kept[len(kept)-1]+1)
	}
	return next
}

// captureOutput copies the output of the program to files in the run directory, and forwards it
// according to command.output. If the capture fails, the program prints directly, and close does
// nothing.
func (r *Rank) captureOutput(o *ProgramOptions) (close func()) {
	c := r.job.Command
	options := output.Options{Mode: output.Mode(c.Output), Rank: r.Info.Rank, Stdout: o.Stdout, Stderr: o.Stderr,
		Limit: int64(c.OutputLimit),
		Warn:  func(m string) { o.Say(fmt.Sprintf("warning: %s: %s", r.Info.Host, m)) }}
	if c.Output == "" {
		options.Mode = output.Merged
	}
	options.Workers = c.Launcher == jobs.LauncherTorchrun
	// Under Slurm, each rank has its own pipes.
	options.Shared = !r.Info.InSlurm() && r.Info.WorldSize > 1
	r.attempt = r.outputAttempt(o)
	dir, err := r.dir.CreateRankOutput(r.attempt)
	if err != nil {
		options.Warn(fmt.Sprintf("%v; the run continues without files of each rank's output", err))
		options.Mode = output.Merged
	} else {
		options.Dir = dir
	}
	capture, err := output.StartCapture(options)
	if err != nil {
		options.Warn(fmt.Sprintf("%v; the run continues without files of each rank's output", err))
		if dir != nil {
			dir.Close()
		}
		return func() {}
	}
	r.capture = capture
	o.Stdout, o.Stderr = capture.Stdout, capture.Stderr
	return func() {
		capture.Close(r.Session.Context())
		if dir != nil {
			dir.Close()
		}
	}
}

// outputAttempt returns the number of the attempt. Without a launcher, it is one more than the
// last attempt with output of this rank, or of this node with torchrun. Rank 0 then removes the
// output of old attempts.
func (r *Rank) outputAttempt(o *ProgramOptions) int {
	lookup := lookupIn(o.Environ)
	if _, launched := lookup(LauncherVariable); launched {
		text, _ := lookup(envOutput)
		if n, err := strconv.Atoi(text); err == nil && n > 0 {
			return n
		}
	}
	if r.Info.Rank == 0 {
		if err := r.dir.RemoveOldOutput(maxOutputAttempts - 1); err != nil {
			o.Say(fmt.Sprintf("warning: %v", err))
		}
	}
	first, perNode := r.Info.Rank, 1
	torchrun := r.job.Command.Launcher == jobs.LauncherTorchrun
	if torchrun {
		first, perNode = r.job.FirstRankOn(r.Info.Rank), r.job.RanksOn(r.Info.Rank)
	}
	kept, _ := r.dir.OutputAttempts()
	last := 0
	for _, n := range kept {
		names, _ := r.dir.ListRankOutput(n)
		for _, name := range names {
			number, rank, ok := output.ParseBase(name)
			if ok && (rank && number >= first && number < first+perNode || !rank && torchrun && number == r.Info.Rank) {
				last = n
			}
		}
	}
	return last + 1
}

// outputLabel matches the label of a line with command.output = "labeled".
var outputLabel = regexp.MustCompile(`^\[rank \d+\] `)

// followOutput makes the recorder read the files of rank 0 if the log of the run does not have its
// output.
func (r *progressRecorder) followOutput(a *attempt) {
	if a.o.Job.Command.Output != jobs.OutputPerRank {
		return
	}
	r.path = filepath.Join(a.o.Dir.RankOutput(a.output), output.Parts(output.RankBase(0))[0])
	if r.source == nil || len(a.o.Job.Command.Progress.Patterns) > 0 { // even if there is no log
		r.output = a.followRank(0)
	}
}

func (a *attempt) followRank(rank int) *trainlog.Follower {
	open := func(name string) (*os.File, error) { return a.o.Dir.OpenRankOutput(a.output, name) }
	return trainlog.FollowFunc(output.Follow(open, output.RankBase(rank)).Next)
}

// rankOutputState returns a number that changes when a rank prints, if the log of the run does not
// have the output of all ranks. Otherwise it returns 0.
func (a *attempt) rankOutputState() (state int64) {
	if mode := a.o.Job.Command.Output; mode != jobs.OutputPerRank && mode != jobs.OutputRank0 {
		return 0
	}
	names, _ := a.o.Dir.ListRankOutput(a.output)
	for _, name := range names {
		if output.IsComponent(name) {
			continue // a server may print while the program hangs
		}
		if info, err := a.o.Dir.StatPath(filepath.Join(a.o.Dir.RankOutput(a.output), name)); err == nil {
			state += info.Size() + info.ModTime().UnixNano() // the end of long output is overwritten in place
		}
	}
	return state
}

// maxLastLines is the number of lines of the failed rank to record.
const maxLastLines = 30

// workerRank matches the rank of a worker of torchrun in a failure.
var workerRank = regexp.MustCompile(`\bRANK=(\d+)\b`)

// RankOfFailure returns the rank that caused a failure, or -1 if no rank did. With torchrun, it is
// the rank of the worker, if it is known.
func RankOfFailure(f *rendezvous.Failure) int {
	if m := workerRank.FindStringSubmatch(f.Reason); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			return n
		}
	}
	return f.Rank
}

// lastLines returns the last lines that the program of the failed rank printed.
func (a *attempt) lastLines(f *rendezvous.Failure) []string {
	if a.o.Job.Command == nil || f.Rank < 0 {
		return nil
	}
	open := func(name string) (*os.File, error) { return a.o.Dir.OpenRankOutput(a.output, name) }
	// Errors are expected: a rank that printed nothing has no file.
	lines, err := output.LastLines(open, output.RankBase(RankOfFailure(f)), maxLastLines)
	if err != nil {
		lines, _ = output.LastLines(open, output.NodeBase(f.Rank), maxLastLines)
	}
	return lines
}
