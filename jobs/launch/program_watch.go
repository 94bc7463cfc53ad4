package launch

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/inspect"
	"github.com/ddpbatch/ddpbatch/jobs/launch/hang"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/trainlog"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// heartbeatChecks is the number of checks of the heartbeat files in each limit. There may be
// thousands of files on a shared file system.
const heartbeatChecks = 10

// outputChecks is the number of checks of the files with the output of ranks in each limit.
const outputChecks = 10

// A programWatch detects that a user's program hangs. It collects evidence before any process is
// killed, and then warns, restarts the ranks, or ends the run. One goroutine calls all methods except
// collectEvidence, which runs concurrently and reads only fields that do not change.
type programWatch struct {
	a       *attempt
	ctx     context.Context
	cancel  context.CancelFunc
	watch   jobs.Watch
	limits  hang.Limits
	began   time.Time
	d       *hang.Detector // nil until all ranks have joined and all components are ready
	pauses  []*regexp.Regexp
	output  string             // path of the ranks' output; empty if unknown
	lines   *trainlog.Follower // of the output; nil without pauses
	labeled bool               // each line of the output begins with the rank
	size    int64              // of the output
	ranks   int64              // state of the output of ranks, see rankOutputState
	ranksAt time.Time          // time of the next check of that state
	file    string             // pattern of the watched file
	changed string             // state of the watched file
	beats   map[int]time.Time  // times of the heartbeat files
	beatAt  time.Time          // time of the next check of these files

	found   chan hangReport // result of collect; nil if it is not running
	current hang.Stall

	joined  <-chan struct{} // closed when all ranks have joined
	now     func() time.Time
	outcome func() rendezvous.Outcome
	collect func(hang.Stall) hangReport
}

// A hangReport is the evidence about a program that hangs.
type hangReport struct {
	sentence string // about groups of ranks; empty if no rank was found
	suspect  int    // rank of the program that differs from all others, or -1
	host     string // of the suspect
	path     string // directory with the evidence
	err      error  // why some evidence is not stored
}

// newProgramWatch returns the watch of an attempt, or nil if the job does not have one. Run is the ID of
// the run, and output the path of the output of the ranks; empty if it is unknown.
func (a *attempt) newProgramWatch(run, output string) *programWatch {
	c := a.o.Job.Command
	if !c.Watch.IsSet() {
		return nil
	}
	w := &programWatch{a: a, watch: c.Watch, began: time.Now(), output: output, size: sizeOf(a.o.Dir, output), labeled: c.Output == jobs.OutputLabeled, beats: map[int]time.Time{},
		limits: hang.Limits{Silence: time.Duration(c.Watch.Silence), Progress: time.Duration(c.Watch.Progress), File: time.Duration(c.Watch.FileTimeout),
			Heartbeat: time.Duration(c.Watch.Heartbeat), Startup: time.Duration(c.Watch.Startup), Pause: time.Duration(c.Watch.Pause)}}
	w.joined, w.now, w.outcome, w.collect = a.server.Joined(), time.Now, a.server.Outcome, w.collectEvidence
	w.ctx, w.cancel = context.WithCancel(context.Background())
	for _, pattern := range c.Watch.PausePatterns {
		if re, err := regexp.Compile(string(pattern)); err == nil { // checked with the job file
			w.pauses = append(w.pauses, re)
		}
	}
	switch {
	case output == "" && (w.limits.Silence > 0 || len(w.pauses) > 0):
		a.o.Say("warning: the output of the ranks is in no file, so command.watch.silence and pause_patterns have no effect")
		w.limits.Silence = 0
	case len(w.pauses) > 0 && c.Output == jobs.OutputPerRank:
		w.lines = a.followRank(0)
	case len(w.pauses) > 0:
		w.lines = trainlog.Follow(opener(a.o.Dir, output), w.size)
	}
	if c.Watch.File != "" {
		w.file = a.o.programPath(c.Watch.File, run)
		w.changed = stateOfFile(w.file)
	}
	if w.limits.Heartbeat > 0 {
		for rank := range a.world {
			w.beats[rank] = modified(a.o.Dir, a.o.Dir.Heartbeat(rank))
		}
	}
	return w
}

// programPath returns a path in the job file that is relative to the program's working directory
// and may have placeholders. Run is the ID of the run.
func (o Options) programPath(text jobs.Text, run string) string {
	c := o.Job.Command
	checkpoints := cmp.Or(c.CheckpointDirIn(o.Dir.Path, run), o.Dir.ProgramCheckpoints())
	path := jobs.Expand(string(text), map[string]string{jobs.PlaceholderRunDir: o.Dir.Path, jobs.PlaceholderRunID: run,
		jobs.PlaceholderCheckpoint: checkpoints})
	if !filepath.IsAbs(path) {
		path = filepath.Join(string(c.Workdir), path)
	}
	return path
}

// stateOfFile returns a text that changes when a file that matches the pattern is added, written,
// or replaced. Of many files it reads only the last ones by name.
func stateOfFile(pattern string) string {
	paths := []string{pattern}
	if strings.ContainsAny(pattern, `*?[\`) {
		paths, _ = filepath.Glob(pattern)
	}
	const maxFiles = 1000
	var all strings.Builder
	for _, path := range paths[max(0, len(paths)-maxFiles):] {
		if info, err := os.Stat(path); err == nil {
			fmt.Fprintf(&all, "%s %d %d\n", path, info.Size(), info.ModTime().UnixNano())
		}
	}
	return all.String()
}

// modified returns the modification time of a file, or the zero time if it cannot be read.
func modified(dir rundir.Dir, path string) time.Time {
	info, err := dir.StatPath(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// check observes the program, with its newest step, and whether output with a newer step may have been
// skipped. It starts to collect evidence if the program hangs, and reacts when the evidence is complete.
func (w *programWatch) check(step int, skipped bool) {
	if w == nil {
		return
	}
	if w.d == nil {
		if !w.a.mayHaveStarted() {
			return // ready_timeout limits the start of a component
		}
		select {
		case <-w.joined:
			w.d = hang.New(w.limits, progressInterval, w.now())
		default:
			return
		}
	}
	w.a.mu.Lock()
	stopping := w.a.stopReason != ""
	w.a.mu.Unlock()
	if stopping {
		return // the program may be silent while it saves; command.stop_grace limits it
	}
	w.observe(step, skipped)
	stalls := w.d.Check(w.now())
	if len(stalls) > 0 {
		// Some files are read only a few times in each limit, and may have changed since.
		w.ranksAt, w.beatAt = time.Time{}, time.Time{}
		w.observe(step, skipped)
		stalls = w.d.Confirm(stalls)
	}
	if w.found != nil {
		select {
		case report := <-w.found:
			w.found = nil
			w.react(report)
		default:
		}
		return
	}
	if len(stalls) == 0 {
		if w.current.Cause != "" && !w.d.Persists(w.current) {
			w.current = hang.Stall{}
			w.a.setHang("")
		}
		return
	}
	w.current = stalls[0]
	w.found = make(chan hangReport, 1)
	go func(found chan<- hangReport, stall hang.Stall) { found <- w.collect(stall) }(w.found, w.current)
}

// observe passes changes since the last call to the detector.
func (w *programWatch) observe(step int, skipped bool) {
	w.d.Step(step)
	if skipped {
		w.d.MayHaveProgressed()
	}
	if w.output != "" {
		if size := sizeOf(w.a.o.Dir, w.output); size != w.size {
			w.size = size
			w.d.Output()
		}
	}
	if now := w.now(); w.limits.Silence > 0 && !now.Before(w.ranksAt) {
		w.ranksAt = now.Add(w.limits.Silence / outputChecks)
		if state := w.a.rankOutputState(); state != w.ranks {
			w.ranks = state
			w.d.Output()
		}
	}
	if w.lines != nil {
		started, skipped := time.Now(), ""
		pause := func(line string) {
			if w.labeled {
				line = outputLabel.ReplaceAllString(line, "")
			}
			w.d.Pause(slices.ContainsFunc(w.pauses, func(re *regexp.Regexp) bool { return re.MatchString(line) }))
		}
		_ = w.lines.Read(func(line string) {
			if time.Since(started) < maxParseTime {
				pause(line)
			} else {
				skipped = line
			}
		})
		if skipped != "" {
			w.d.Pause(false) // one of the skipped lines may have ended the pause
			pause(skipped)   // the last line
		}
	}
	if w.file != "" {
		if state := stateOfFile(w.file); state != w.changed {
			w.changed = state
			w.d.FileChanged()
		}
	}
	if now := w.now(); w.limits.Heartbeat > 0 && !now.Before(w.beatAt) {
		w.beatAt = now.Add(w.limits.Heartbeat / heartbeatChecks)
		for _, r := range w.outcome().Ranks {
			if r.State != rendezvous.Joined {
				w.d.Forget(r.Rank)
			} else if at := modified(w.a.o.Dir, w.a.o.Dir.Heartbeat(r.Rank)); !at.Equal(w.beats[r.Rank]) {
				w.beats[r.Rank] = at
				w.d.Beat(r.Rank)
			}
		}
	}
}

// collectEvidence writes what all ranks are doing, the status of NCCL's RAS service, and PyTorch's
// flight-recorder dumps to the run directory.
func (w *programWatch) collectEvidence(stall hang.Stall) hangReport {
	a := w.a
	number := a.attemptOfRun()
	report := hangReport{suspect: -1, path: a.o.Dir.Evidence(number)}
	runID, _ := lookupIn(a.environ)(programRunID)
	search := inspect.Search{RunID: runID, Env: a.o.Environ}
	var ranks []inspect.Rank
	var err error
	if a.o.Allocation == nil {
		ranks, err = search.OnHost(w.ctx)
	} else {
		ranks, err = search.OnNodes(w.ctx, a.inspectedNodes(), a.o.Binary)
	}
	world := a.world
	if a.o.Job.Command.Launcher == jobs.LauncherTorchrun {
		if world = a.world * a.o.Job.TasksPerNode(); a.layout != "" {
			world = a.o.Job.Ranks()
		}
		world = max(len(ranks), world)
	}
	groups := inspect.GroupRanks(ranks)
	if len(ranks) > 0 {
		report.sentence = inspect.Summarize(groups, world)
	}
	if r, ok := inspect.Stopped(ranks); ok {
		report.suspect, report.host = r.Rank, r.Host
	} else if r, ok := inspect.Odd(groups); ok {
		report.suspect, report.host = r.Rank, r.Host
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s: %s\n", time.Now().UTC().Format(time.RFC3339), w.describe(stall))
	if report.sentence != "" {
		fmt.Fprintf(&text, "%s\n", report.sentence)
	}
	if err != nil {
		fmt.Fprintf(&text, "not all ranks were read: %v\n", err)
	}
	var lines []byte
	var ras strings.Builder
	for _, r := range ranks {
		fmt.Fprintf(&text, "\nrank %d on %s, process %d: %s\n", r.Rank, printable.Line(r.Host), r.PID, printable.Line(r.Doing))
		if r.Reason != "" {
			fmt.Fprintf(&text, "    no stack: %s\n", printable.Line(r.Reason))
		}
		for line := range strings.Lines(r.Stack) {
			fmt.Fprintf(&text, "    %s\n", printable.Line(strings.TrimRight(line, "\n")))
		}
		if r.RAS != "" {
			fmt.Fprintf(&ras, "from rank %d on %s:\n", r.Rank, printable.Line(r.Host))
			for line := range strings.Lines(r.RAS) {
				fmt.Fprintln(&ras, printable.Line(strings.TrimRight(line, "\n")))
			}
			r.RAS = "" // in its own file
		}
		if line, err := json.Marshal(r); err == nil {
			lines = append(append(lines, line...), '\n')
		}
	}
	err = a.o.Dir.WriteEvidence(number, "stacks.txt", []byte(text.String()))
	if err == nil {
		err = a.o.Dir.WriteEvidence(number, "ranks.jsonl", lines)
	}
	if err == nil && ras.Len() > 0 {
		err = a.o.Dir.WriteEvidence(number, "nccl-ras.txt", []byte(ras.String()))
	}
	if err == nil {
		_, err = a.o.Dir.MoveTraces(number, w.began)
	}
	if err != nil && !a.o.Dir.IsDeleted() {
		report.err = err
	}
	return report
}

// keepTraces moves PyTorch's flight-recorder dumps of a failed attempt to its evidence. The dumps of
// the next attempt have the same names.
func (a *attempt) keepTraces() {
	if a.o.Job.Command == nil || a.o.Dir.IsDeleted() {
		return
	}
	number := a.attemptOfRun()
	n, err := a.o.Dir.MoveTraces(number, a.began)
	if err != nil {
		a.o.Say(fmt.Sprintf("warning: keep the dumps of PyTorch's flight recorder: %v", err))
	}
	if n > 0 {
		a.o.Say(fmt.Sprintf("%s of PyTorch's flight recorder: %s", format.Count(n, "dump"), a.o.Dir.Evidence(number)))
	}
}

// programHosts returns the hosts on which the program may have processes.
func (a *attempt) programHosts() []string {
	if a.o.Job.RunsOnce() {
		return a.nodes
	}
	return slices.Compact(slices.Clone(a.hosts))
}

// inspectedNodes returns the nodes of the program, for package inspect.
func (a *attempt) inspectedNodes() inspect.Nodes {
	nodes := inspect.Nodes{JobID: a.jobID(), Hosts: a.programHosts()}
	for _, c := range a.o.Allocation.Components {
		nodes.Components = append(nodes.Components, c.Nodes)
	}
	return nodes
}

// describe returns a stall with the ranks that caused it.
func (w *programWatch) describe(stall hang.Stall) string {
	if len(stall.Ranks) == 0 {
		return stall.String()
	}
	if w.a.o.Job.Command.Launcher == jobs.LauncherTorchrun { // heartbeats are per node
		var hosts []string
		for _, rank := range stall.Ranks {
			hosts = append(hosts, w.a.hosts[rank])
		}
		return fmt.Sprintf("%s from %s", stall, slurm.FoldHosts(hosts))
	}
	if rank := stall.Ranks[0]; len(stall.Ranks) == 1 {
		return fmt.Sprintf("%s from rank %d on %s", stall, rank, w.a.hosts[rank])
	}
	return fmt.Sprintf("%s from %s", stall, format.Ranks(stall.Ranks))
}

// say prints a message. The log of the run may have the message, but it is not output of a rank.
func (w *programWatch) say(message string) {
	w.a.o.Say(message)
	w.size = sizeOf(w.a.o.Dir, w.output)
}

// react reports a program that hangs, or fails the attempt.
func (w *programWatch) react(report hangReport) {
	a := w.a
	if report.err != nil {
		w.say(fmt.Sprintf("warning: store the evidence about the program: %v", report.err))
	}
	reason := "the program hangs: " + w.describe(w.current)
	if report.sentence != "" {
		reason += "; " + report.sentence
	}
	if !w.d.Persists(w.current) {
		w.say(fmt.Sprintf("%s; it has continued in the meantime. The state of its ranks is in %s", reason, report.path))
		w.current = hang.Stall{}
		return
	}
	if w.watch.Action == jobs.WatchReport {
		a.setHang(reason)
		w.say(fmt.Sprintf("warning: %s. The state of its ranks is in %s", reason, report.path))
		return
	}
	f := rendezvous.Failure{Rank: -1, State: rendezvous.Lost, Phase: "hang", Reason: reason,
		Advice: "the state of all ranks is in " + report.path}
	switch {
	case len(w.current.Ranks) == 1:
		f.Rank = w.current.Ranks[0]
	case report.suspect >= 0:
		f.Rank = a.serverRank(report.suspect, report.host)
	}
	if f.Rank >= 0 {
		f.Host = a.hosts[f.Rank]
	}
	a.mu.Lock()
	a.final = w.watch.Action == jobs.WatchEnd
	a.mu.Unlock()
	a.server.Abort(f)
}

// serverRank returns the rank at the launcher for a rank of the program, or -1. They differ with
// torchrun, because the launcher starts one torchrun per node.
func (a *attempt) serverRank(rank int, host string) int {
	if a.o.Job.Command.Launcher == jobs.LauncherTorchrun {
		return slices.Index(a.hosts, host)
	}
	if rank < len(a.hosts) {
		return rank
	}
	return -1
}

// attemptOfRun returns the number of this attempt in the run, from 1.
func (a *attempt) attemptOfRun() int {
	text, _ := lookupIn(a.environ)(programRestarts)
	restarts, _ := strconv.Atoi(text)
	return restarts + 1
}

// setHang sets the text about a program that hangs, for live.json.
func (a *attempt) setHang(text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hang = text
}

// close stops the collection of evidence.
func (w *programWatch) close() {
	if w == nil {
		return
	}
	w.cancel()
	if w.found != nil {
		<-w.found
	}
}
