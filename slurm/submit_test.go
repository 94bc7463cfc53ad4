package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// TestSubmit checks the job ID in the output of sbatch, and the errors and hints of rejected jobs.
func TestSubmit(t *testing.T) {
	for _, tt := range []struct {
		name, sbatch string
		id           string
		err, hint    string // parts of the texts; empty for none
	}{
		{name: "ID", sbatch: `echo 123`, id: "123"},
		{name: "ID with cluster", sbatch: `echo '123;west'`, id: "123"},
		{name: "other lines", sbatch: `echo 'Welcome to 2026'; echo 7; echo 'sbatch: warning: x' >&2; echo 123`, id: "123"},
		{name: "no line break", sbatch: `printf 123`, id: "123"},
		{name: "child keeps the pipe open", sbatch: `/bin/sleep 30 & echo 123`, id: "123"},
		{name: "no output", sbatch: `exit 0`, err: "no job ID", hint: "squeue --me"},
		{name: "no ID", sbatch: `echo 'Submitted batch job 123'`, err: `"Submitted batch job 123\n"`, hint: "squeue --me"},
		{name: "rejected", sbatch: `echo 'sbatch: error: invalid partition specified: gpux' >&2; echo 'sbatch: error: Batch job submission failed' >&2; exit 1`,
			err: "exit status 1): sbatch: error: invalid partition specified: gpux; sbatch: error: Batch", hint: "slurm.partition"},
		{name: "rejected after an ID", sbatch: `echo 123; exit 1`, err: "exit status 1"},
		{name: "killed", sbatch: `kill -9 $$`, err: "signal: killed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fake := newFakeSlurm(t, map[string]string{"sbatch": tt.sbatch})
			id, err := fake.Submit(t.Context(), SubmitRequest{Script: "/run/job.sbatch"})
			if id != tt.id {
				t.Errorf("got ID %q, want %q", id, tt.id)
			}
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("got error %v, want %q", err, tt.err)
			}
			if err != nil && !strings.Contains(err.Error(), `"/run/job.sbatch"`) {
				t.Errorf("got error %v, want the script in it", err)
			}
			if got := hints.Of(err); !strings.Contains(got, tt.hint) || (got == "") != (tt.hint == "") {
				t.Errorf("got hint %q, want %q", got, tt.hint)
			}
		})
	}
}

// TestSubmitPassesRequest checks that sbatch gets the arguments unchanged, an empty standard
// input, the working directory, and an environment without the caller's step.
func TestSubmitPassesRequest(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{
		"sbatch": record + `/usr/bin/env >"$FAKE/env"; /bin/readlink /proc/self/fd/0 >"$FAKE/stdin"; pwd >"$FAKE/pwd"; echo 1`,
	})
	fake.Environ = append(fake.Environ, "SLURM_JOB_ID=7", "SBATCH_PARTITION=high", "SLURM_CONF=/etc/slurm.conf", "HF_HOME=/hf")
	dir := t.TempDir()
	_, err := fake.Submit(t.Context(), SubmitRequest{
		Script: filepath.Join(dir, "job $(touch x).sbatch"), Dir: dir,
		Comment: "a b; c", Note: "note #1", Dependencies: []Dependency{{AfterOK, []string{"7", "8_3"}}, {AfterAny, []string{"9"}}, {Singleton, nil}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{{"sbatch", "--parsable", "--comment=a b; c note #1", "--dependency=afterok:7:8_3,afterany:9,singleton", "job $(touch x).sbatch"}}
	if got := fake.calls(t); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got calls %q, want %q", got, want)
	}
	for file, want := range map[string]string{"stdin": "/dev/null\n", "pwd": dir + "\n"} {
		if got, err := os.ReadFile(filepath.Join(fake.dir, file)); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v, want %q", file, got, err, want)
		}
	}
	env, err := os.ReadFile(filepath.Join(fake.dir, "env"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"SLURM_JOB_ID=", "SBATCH_PARTITION="} {
		if strings.Contains(string(env), name) {
			t.Errorf("sbatch got %s", name)
		}
	}
	for _, entry := range []string{"SLURM_CONF=/etc/slurm.conf\n", "HF_HOME=/hf\n"} {
		if !strings.Contains(string(env), entry) {
			t.Errorf("sbatch did not get %s", entry)
		}
	}
}

// TestSubmitText checks that a script that others could replace is read from standard input.
func TestSubmitText(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{"sbatch": record + `/bin/cat >"$FAKE/stdin"; echo 1`})
	id, err := fake.Submit(t.Context(), SubmitRequest{Script: "/runs/a/job.sbatch", Text: []byte("#!/bin/bash\n"), Comment: "c"})
	if err != nil || id != "1" {
		t.Fatal(id, err)
	}
	want := [][]string{{"sbatch", "--parsable", "--comment=c"}}
	if got := fake.calls(t); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got calls %q, want %q", got, want)
	}
	if got, err := os.ReadFile(filepath.Join(fake.dir, "stdin")); err != nil || string(got) != "#!/bin/bash\n" {
		t.Errorf("stdin: got %q, %v", got, err)
	}
}

// TestSubmitTimeout checks that a program that hangs is killed with its children at the deadline.
func TestSubmitTimeout(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{
		"sbatch": `echo 'sbatch: error: Socket timed out' >&2; trap '' TERM INT; /bin/sleep 60 & echo $! >"$FAKE/child"; echo >"$FAKE/ready"; wait`,
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(fake.dir, "ready")); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
	}()
	if _, err := fake.Submit(ctx, SubmitRequest{Script: "/run/job.sbatch"}); !errors.Is(err, context.Canceled) || !MaybeSubmitted(err) {
		t.Errorf("canceled: got %v", err)
	}
	child, err := os.ReadFile(filepath.Join(fake.dir, "child"))
	if err != nil {
		t.Fatal(err)
	}
	for isRunning(strings.TrimSpace(string(child))) {
		time.Sleep(10 * time.Millisecond) // the test times out if the child is not killed
	}
	late, cancelLate := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancelLate()
	_, err = fake.Submit(late, SubmitRequest{Script: "/run/job.sbatch"})
	if !errors.Is(err, context.DeadlineExceeded) || !MaybeSubmitted(err) {
		t.Errorf("deadline: got %v", err)
	}
	if got := hints.Of(err); !strings.Contains(got, "squeue --me") {
		t.Errorf("got hint %q, want a warning not to submit twice", got)
	}
}

// TestSubmitRejectsInvalidRequests checks that invalid scripts, dependencies, and comments are
// rejected before sbatch runs.
func TestSubmitRejectsInvalidRequests(t *testing.T) {
	for _, tt := range []struct {
		name    string
		request SubmitRequest
		want    string // part of the error
	}{
		{name: "script like an option", request: SubmitRequest{Script: "--wrap=id"}, want: `"--wrap=id"`},
		{name: "unknown dependency", request: SubmitRequest{Script: "/job", Dependencies: []Dependency{{"afterlife", []string{"1"}}}}, want: `"afterlife"`},
		{name: "singleton with an ID", request: SubmitRequest{Script: "/job", Dependencies: []Dependency{{Singleton, []string{"1"}}}}, want: "singleton"},
		{name: "dependency without ID", request: SubmitRequest{Script: "/job", Dependencies: []Dependency{{AfterOK, nil}}}, want: "afterok"},
		{name: "dependency on an invalid ID", request: SubmitRequest{Script: "/job", Dependencies: []Dependency{{AfterOK, []string{"1", "2,afterany:3"}}}}, want: `"2,afterany:3"`},
		{name: "note with a line break", request: SubmitRequest{Script: "/job", Comment: "a", Note: "x\ny"}, want: `"a x\ny"`},
		{name: "comment with a line break", request: SubmitRequest{Script: "/job", Comment: "a\nb"}, want: `"a\nb"`},
	} {
		fake := newFakeSlurm(t, map[string]string{"sbatch": "echo 1"})
		id, err := fake.Submit(t.Context(), tt.request)
		if id != "" || err == nil || !strings.Contains(err.Error(), tt.want) || MaybeSubmitted(err) {
			t.Errorf("%s: got %q, %v, want %q in the error", tt.name, id, err, tt.want)
		}
	}
}

// TestCheckComment checks which comments are valid. Slurm must return them unchanged.
func TestCheckComment(t *testing.T) {
	for comment, want := range map[string]bool{
		"a": true, "ddpbatch 7f3a": true, "~!": true, "": false, " x": false, "x ": false, "a\nb": false, "a\x1fb": false, "a\x7fb": false, "a'b": false, `a"b`: false, "ä": false,
	} {
		if err := checkComment(comment); (err == nil) != want {
			t.Errorf("%q: got %v, want valid %v", comment, err, want)
		}
	}
}

// TestFindByComment checks that only jobs with exactly this comment are found, with the IDs of job
// arrays and heterogeneous jobs.
func TestFindByComment(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{"squeue": record + show(
		"112|N/A|N/A|N/A|ddpbatch 7f3a\n"+ // a second submission
			"12  |12 |N/A |0 |ddpbatch 7f3a   \n"+
			"13|13|N/A|0|ddpbatch 7f3a and a note\n"+
			"16|16|N/A|0|ddpbatch 7f3ab\n"+
			"14|14|N/A|0|(null)\n"+
			"15|15|N/A|0|a|ddpbatch 7f3a\n"+
			"20|18|2|0|ddpbatch 7f3a\n"+ // a job array has one ID
			"18|18|3-9%2|0|ddpbatch 7f3a\n"+
			"30|N/A|N/A|30|ddpbatch 7f3a\n"+ // a heterogeneous job has the ID of its first component
			"31|N/A|N/A|30|ddpbatch 7f3a\n"+
			"x|N/A|N/A|N/A|ddpbatch 7f3a\n"+
			"40|N/A\n")})
	ids, err := fake.FindByComment(t.Context(), "ddpbatch 7f3a")
	if want := []string{"12", "13", "18", "30", "112"}; err != nil || !slices.Equal(ids, want) {
		t.Errorf("got %q, %v, want %q", ids, err, want)
	}
	if ids, err := fake.FindByComment(t.Context(), "(null"); err != nil || len(ids) > 0 {
		t.Errorf("prefix of a comment: got %q, %v, want none", ids, err)
	}
	if ids, err := fake.FindByComment(t.Context(), "a\nb"); err == nil {
		t.Errorf("invalid comment: got %q, want an error", ids)
	}
	want := []string{"squeue", "--noheader", "--states=all", "--me", "--Format=" + commentFormat}
	if got := fake.calls(t); !slices.Equal(got[0], want) || len(got) != 2 {
		t.Errorf("got calls %q, want 2 calls %q", got, want)
	}
	down := newFakeSlurm(t, map[string]string{"squeue": controllerDown})
	if ids, err := down.FindByComment(t.Context(), "x"); err == nil || ids != nil {
		t.Errorf("controller down: got %q, %v, want an error", ids, err)
	}
}

// TestFindByScript checks that only jobs with exactly this script and output are found.
func TestFindByScript(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{"squeue": record + show(
		"112|N/A|N/A|N/A|ddpbatch:7f|/runs/a/job.sbatch|/runs/a/slurm-%j.out\n"+
			"12  |12 |N/A |0 |(null)   |/runs/a/job.sbatch|/runs/a/slurm-12.out \n"+
			"13|13|N/A|0|(null)|/runs/b/job.sbatch|/runs/b/slurm-%j.out\n"+
			"14|14|N/A|0|x|/runs/a/job.sbatch|/runs/b/job.sbatch|/runs/b/slurm-%j.out\n"+ // the comment is "x|/runs/a/job.sbatch"
			"15|15|N/A|0|(null)|(null)|(null)\n"+
			"16|16|N/A|0|(null)|(null)|/runs/ab/slurm-%j.out\n"+
			"17|17|N/A|0|ddpbatch:9c|(null)|/runs/a/slurm-%j.out\n"+ // read from standard input
			"20|18|2|0|ddpbatch:8a|/runs/a/job.sbatch|/runs/a/elements/%a/slurm-%A_%a.out\n"+ // a job array has one ID
			"18|18|3-9%2|0|ddpbatch:8a|/runs/a/job.sbatch|/runs/a/elements/%a/slurm-%A_%a.out\n"+
			"40|N/A\n")})
	found, err := fake.FindByScript(t.Context(), "/runs/a/job.sbatch")
	want := []SubmittedJob{{"12", "(null)"}, {"17", "ddpbatch:9c"}, {"18", "ddpbatch:8a"}, {"112", "ddpbatch:7f"}}
	if err != nil || !slices.Equal(found, want) {
		t.Errorf("got %v, %v, want %v", found, err, want)
	}
	down := newFakeSlurm(t, map[string]string{"squeue": controllerDown})
	if found, err := down.FindByScript(t.Context(), "/x"); err == nil || found != nil {
		t.Errorf("controller down: got %v, %v, want an error", found, err)
	}
}

// TestMaybeSubmitted checks which errors of sbatch leave open whether the job was submitted.
func TestMaybeSubmitted(t *testing.T) {
	const failed = "sbatch: error: Batch job submission failed: "
	stderr := func(line string) string { return "echo '" + line + "' >&2; " }
	for _, tt := range []struct {
		name, sbatch string
		maybe, reply bool
	}{
		{name: "known error", sbatch: stderr(failed+"Invalid account or account/partition combination specified") + "exit 1", reply: true},
		{name: "unknown error code", sbatch: stderr(failed+"Burst Buffer request invalid") + "exit 1", reply: true},
		{name: "unknown option", sbatch: stderr("sbatch: unrecognized option --gpsu=1") + "exit 255", reply: true},
		{name: "known text without an error code", sbatch: stderr("sbatch: error: Memory specification can not be satisfied") + "exit 1", reply: true},
		{name: "limit without an error code", sbatch: stderr("allocation failure: PartitionTimeLimit") + "exit 1", reply: true},
		{name: "no configuration", sbatch: stderr("sbatch: fatal: Could not establish a configuration source") + "exit 1", reply: true},
		{name: "socket timeout", sbatch: stderr(failed+"Socket timed out on send/recv operation") + "exit 1", maybe: true},
		{name: "controller down", sbatch: stderr(failed+"Unable to contact slurm controller (connect failure)") + "exit 1", maybe: true},
		{name: "connection lost", sbatch: stderr(failed+"Zero Bytes were transmitted or received") + "exit 1", maybe: true},
		{name: "rejected in a retry", sbatch: stderr("sbatch: error: Socket timed out on send/recv operation") + stderr(failed+"Invalid qos specification") + "exit 1", maybe: true},
		{name: "no message", sbatch: `exit 1`, maybe: true, reply: true},
		{name: "unknown message", sbatch: stderr("sbatch: lua: oops") + "exit 1", maybe: true, reply: true},
		{name: "killed", sbatch: `kill -9 $$`, maybe: true},
		{name: "killed after a message", sbatch: stderr("sbatch: error: Invalid qos specification") + "kill -9 $$", maybe: true},
		{name: "no ID", sbatch: `exit 0`, maybe: true, reply: true},
		{name: "ID and failure", sbatch: `echo 12; exit 1`, maybe: true, reply: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fake := newFakeSlurm(t, map[string]string{"sbatch": tt.sbatch})
			_, err := fake.Submit(t.Context(), SubmitRequest{Script: "/job"})
			if err == nil || MaybeSubmitted(err) != tt.maybe || GotReply(err) != tt.reply {
				t.Errorf("%v: got maybe submitted %v, reply %v, want %v, %v", err, MaybeSubmitted(err), GotReply(err), tt.maybe, tt.reply)
			}
		})
	}
	_, missing := Client{}.Submit(t.Context(), SubmitRequest{Script: "/job"})
	for _, err := range []error{nil, missing, errors.New("x"), fmt.Errorf("y: %w", exec.ErrNotFound)} {
		if MaybeSubmitted(err) || GotReply(err) {
			t.Errorf("%v: got maybe submitted %v, reply %v, want false", err, MaybeSubmitted(err), GotReply(err))
		}
	}
	for _, err := range []error{context.Canceled, context.DeadlineExceeded} {
		if !MaybeSubmitted(fmt.Errorf("interrupted: %w", err)) {
			t.Errorf("%v: got not submitted", err)
		}
	}
}

// TestTestOnly checks the forecast and the hint for a rejected script.
func TestTestOnly(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{
		"sbatch": `/bin/cat >"$FAKE/script"; echo "sbatch: Job 7 to start at 2026-11-21T10:00:00 using 4 processors on nodes n[1-2] in partition batch" >&2`,
	})
	forecast, err := fake.TestOnly(t.Context(), []byte("#!/bin/sh\n"), t.TempDir())
	if err != nil || forecast.Nodes != "n[1-2]" || !strings.HasPrefix(forecast.Text, "Job 7 to start at") {
		t.Errorf("got %+v, %v", forecast, err)
	}
	if got, err := os.ReadFile(filepath.Join(fake.dir, "script")); err != nil || string(got) != "#!/bin/sh\n" {
		t.Errorf("got script %q, %v", got, err)
	}
	fake = newFakeSlurm(t, map[string]string{"sbatch": `echo "sbatch: error: invalid partition specified: gpu" >&2; exit 1`})
	_, err = fake.TestOnly(t.Context(), nil, t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "invalid partition specified: gpu") || !strings.Contains(hints.Of(err), "slurm.partition") {
		t.Errorf("rejected: got %v, hint %q", err, hints.Of(err))
	}
}

// TestParseForecast checks forecasts in the formats of different versions of Slurm.
func TestParseForecast(t *testing.T) {
	now := time.Date(2026, 11, 20, 8, 0, 0, 0, time.Local)
	ten := time.Date(2026, 11, 21, 10, 0, 0, 0, time.Local)
	for _, tt := range []struct {
		name, output string
		want         Forecast // without Text
		text         string   // if it differs from the output without "sbatch: "
	}{
		{name: "22.05", output: "sbatch: Job 7 to start at 2026-11-21T10:00:00 using 4 processors on nodes n[1-2] in partition batch\n",
			want: Forecast{Start: ten, CPUs: 4, Nodes: "n[1-2]", Partition: "batch"}},
		{name: "before 17.11", output: "sbatch: Job 7 to start at 2026-11-21T10:00:00 using 4 processors on n[1-2]\n",
			want: Forecast{Start: ten, CPUs: 4, Nodes: "n[1-2]"}},
		{name: "federation", output: "sbatch: Job 7 to start at 2026-11-21T10:00:00 on cluster west using 4 processors on nodes n1 in partition p\n",
			want: Forecast{Start: ten, CPUs: 4, Nodes: "n1", Partition: "p"}},
		{name: "warning", output: "sbatch: warning: no --time\n\nsbatch: Job 7 to start at 2026-11-21T10:00:00 using 4 processors on nodes n1 in partition p\n",
			want: Forecast{Start: ten, CPUs: 4, Nodes: "n1", Partition: "p"},
			text: "warning: no --time\nJob 7 to start at 2026-11-21T10:00:00 using 4 processors on nodes n1 in partition p"},
		{name: "heterogeneous job", output: "sbatch: Job 7 to start at 2026-11-21T10:00:00 using 4 processors on nodes n1 in partition p\n" +
			"sbatch: Job 8 to start at 2026-11-21T09:00:00 using 2 processors on nodes g1 in partition gpu\n",
			want: Forecast{Start: ten, CPUs: 6, Nodes: "n1,g1", Partition: "gpu"}},
		{name: "too many CPUs", output: "sbatch: Job 7 to start at 2026-11-21T10:00:00 using 2147483647 processors on nodes n1 in partition p\n" +
			"sbatch: Job 8 to start at 2026-11-21T10:00:00 using 1 processors on nodes n2 in partition p\n",
			want: Forecast{Start: ten, CPUs: 2147483647, Nodes: "n1,n2", Partition: "p"}},
		{name: "year 3047", output: "sbatch: Job 7 to start at 3047-11-21T10:00:00 using 4 processors on nodes n1 in partition p\n",
			want: Forecast{CPUs: 4, Nodes: "n1", Partition: "p"}},
		{name: "one of two in the year 3047", output: "sbatch: Job 7 to start at 3047-11-21T10:00:00 using 4 processors on nodes n1 in partition p\n" +
			"sbatch: Job 8 to start at 2026-11-21T10:00:00 using 4 processors on nodes n2 in partition p\n",
			want: Forecast{CPUs: 8, Nodes: "n1,n2", Partition: "p"}},
		{name: "no time", output: "sbatch: Job 7 to start at Unknown using 4 processors on nodes n1 in partition p\n",
			want: Forecast{CPUs: 4, Nodes: "n1", Partition: "p"}},
		{name: "other text", output: "all well\n"},
		{name: "no output"},
	} {
		got := parseForecast(tt.output, now)
		if tt.text == "" {
			tt.text = strings.TrimSpace(strings.ReplaceAll(tt.output, "sbatch: ", ""))
		}
		tt.want.Text = tt.text
		if !got.Start.Equal(tt.want.Start) {
			t.Errorf("%s: got start %s, want %s", tt.name, got.Start, tt.want.Start)
		}
		got.Start = tt.want.Start
		if got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// FuzzParseForecast checks that any output results in a valid forecast.
func FuzzParseForecast(f *testing.F) {
	f.Add("sbatch: Job 7 to start at 2026-11-21T10:00:00 using 4 processors on nodes n[1-2] in partition batch\n")
	f.Add("Job 7 to start at 9999-12-31T23:59:59 using 99999999999999999999 processors on n")
	now := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, output string) {
		got := parseForecast(output, now)
		if got.CPUs < 0 || got.Start.Sub(now) > maxForecast || strings.ContainsAny(got.Text, "\x1b\r") {
			t.Fatalf("%q: got %+v", output, got)
		}
	})
}
