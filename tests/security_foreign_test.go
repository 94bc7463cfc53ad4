package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// testCancelOfAForeignRun uses a record of another user that names a job of alice's. ddpbatch did
// not submit this job and must not cancel it.
func testCancelOfAForeignRun(t *testing.T, s *twoUsers) {
	alice, mallory := s.people(t)
	project := s.project(t)
	job := strings.TrimSpace(alice.sh(alice.Home, "sbatch --parsable -N1 -o /dev/null --wrap 'sleep 600'"))
	defer alice.sh("/", `scancel "$1"`, job)
	run := filepath.Join(project, "demo-run")
	mallory.foreignRun(run, "true")
	mallory.write(filepath.Join(run, "record.json"), fmt.Sprintf(`{"format":1,"run":"aaaa","name":"demo-run","base":"/tmp",`+
		`"created":"2026-01-01T00:00:00Z","version":"x","submissions":[{"id":"bbbbbbbbbbbbbbbb","job_id":%q,`+
		`"time":"2026-01-01T00:00:00Z","host":"h","user":"mallory"}]}`, job))
	mine := filepath.Join(alice.dir(), "demo-run")
	alice.copyRun(run, mine)
	alice.sh("/", `chmod -R go-w "$1"`, mine)
	for _, run := range []string{run, mine} {
		o := alice.ddpbatch(project, "cancel", run)
		if strings.Contains(o.stdout, "requested that Slurm cancel") {
			t.Errorf("cancel: %v", o)
		}
		if run != mine {
			mustFail(t, o, "user")
		}
		state, err := s.JobState(t.Context(), job)
		if err != nil || state != "RUNNING" && state != "PENDING" {
			t.Errorf("the job is %s, %v", state, err)
		}
	}
}

// testLinksInAForeignRun puts symbolic links into another user's run directory. They lead to files
// that only alice can read.
func testLinksInAForeignRun(t *testing.T, s *twoUsers) {
	alice, mallory := s.people(t)
	project, home := s.project(t), alice.dir()
	const private = "PRIVATE-KEY-OF-ALICE"
	key := filepath.Join(home, "key")
	alice.write(key, private+"\n")
	alice.sh(home, "chmod 0600 key")
	for _, name := range []string{
		"job.sbatch", "job.toml", "site.toml", "metrics.jsonl", "attempts.jsonl", "live.json", "ended.json",
		"failure.json", "network.json", "slurm-1.out", "logs/rank-00000.jsonl", "logs/attempt-0001/rank-00000.out",
	} {
		run := filepath.Join(project, "runs", strings.ReplaceAll(name, "/", "-"))
		mallory.foreignRun(run, "true")
		mallory.write(filepath.Join(run, "record.json"), `{"format":1,"run":"aaaa","name":"r","base":"/tmp",`+
			`"created":"2026-01-01T00:00:00Z","version":"x","submissions":[{"job_id":"1","time":"2026-01-01T00:00:00Z","host":"h","user":"mallory"}]}`)
		mallory.sh(run, `mkdir -p "$(dirname "$2")" && ln -sf "$1" "$2"`, key, name)
		if got := alice.sh(run, `cat "$1"`, name); !strings.Contains(got, private) {
			t.Fatalf("%s: the link does not lead to the file", name)
		}
		for _, args := range [][]string{
			{"report", run, "--force", "-o", filepath.Join(home, "report.html")}, {"report", run, "-o", "-"},
			{"status", run}, {"status", "--json", run}, {"logs", run}, {"logs", "--rank", "0", run}, {"doctor", "--log", run},
		} {
			os.Remove(filepath.Join(home, "report.html"))
			o := alice.ddpbatch(home, args...)
			text, _ := os.ReadFile(filepath.Join(home, "report.html"))
			if strings.Contains(o.stdout+o.stderr+string(text), private) {
				t.Errorf("%s: %s shows the private file", name, args[0])
			}
		}
	}
}

// testOutputThroughALink creates symbolic links with the names of files that alice is about to
// write.
func testOutputThroughALink(t *testing.T, s *twoUsers) {
	alice, mallory := s.people(t)
	dir, home, run := s.scratch(t), alice.dir(), s.finishedRun(t)
	valuable := filepath.Join(home, "valuable")
	names := map[string][]string{
		"new.toml": {"init", "--force", "new.toml"}, "from.toml": {"init", "--force", "--from", filepath.Join(home, "old.sh"), "from.toml"},
		"report.html": {"report", run, "--force", "-o", "report.html"},
		"m.pt":        {"checkpoint", "export", run, "--force", "-o", "m.pt"}, "m.safetensors": {"checkpoint", "export", run, "--force", "-o", "m.safetensors"},
	}
	alice.write(filepath.Join(home, "old.sh"), "#!/bin/bash\n#SBATCH -N 1\n#SBATCH -t 10\nsrun python3 train.py\n")
	for name, args := range names {
		alice.write(valuable, "keep\n")
		mallory.sh(dir, `ln -s "$1" "$2"`, valuable, name)
		if got := alice.sh(dir, `cat "$1"`, name); got != "keep\n" {
			t.Fatalf("%s: the link does not lead to the file: %q", name, got)
		}
		o := alice.ddpbatch(dir, args...)
		if text, err := os.ReadFile(valuable); err != nil || string(text) != "keep\n" {
			t.Errorf("%v: the file behind the link is now %.60q, %v\n%v", args, text, err, o)
		}
		if o.code != 0 {
			mustFail(t, o, name)
		}
	}
}

// testFIFOsInAForeignRun replaces the files of a run with FIFOs. A process that opens a FIFO waits
// for a writer.
func testFIFOsInAForeignRun(t *testing.T, s *twoUsers) {
	alice, mallory := s.people(t)
	project := s.project(t)
	// Each command gets the run directory as its last argument.
	const script = `binary=$1 run=$2
try() {
	code=0
	timeout -s KILL 60 "$binary" "$@" </dev/null >/dev/null 2>&1 || code=$?
	[ $code -le 5 ] || echo "exit code $code: $*"
}
try status "$run"
try status --json "$run"
try report -o - "$run"
try logs "$run"
try logs --rank 0 "$run"
try checkpoint ls "$run"
try checkpoint verify "$run"
try doctor --log "$run"
try trace -o - "$run"
try cancel "$run"
`
	for _, name := range []string{
		"record.json", "job.toml", "site.toml", "job.sbatch", "live.json", "ended.json", "metrics.jsonl", "attempts.jsonl",
		"network.json", "failure.json", "slurm-1.out", "logs/rank-00000.jsonl", "logs/attempt-0001/rank-00000.out", "lock", "submit.lock", "checkpoints",
	} {
		run := filepath.Join(project, "runs", strings.ReplaceAll(name, "/", "-"))
		mallory.foreignRun(run, "true")
		if name != "record.json" {
			mallory.write(filepath.Join(run, "record.json"), `{"format":1,"run":"aaaa","name":"r","base":"/tmp",`+
				`"created":"2026-01-01T00:00:00Z","version":"x","submissions":[{"job_id":"1","time":"2026-01-01T00:00:00Z","host":"h","user":"mallory"}]}`)
		}
		mallory.sh(run, `mkdir -p logs "$(dirname "$1")" && rm -rf "$1" && mkfifo -m 0666 "$1"`, name)
		alice.sh(run, `test -p "$1" && test -r "$1"`, name)
		if got := alice.sh(project, script, s.binary, run); got != "" {
			t.Errorf("%s is a FIFO: %s", name, got)
		}
	}
	for _, args := range [][]string{{"status"}, {"status", "--json"}, {"top", "--once"}} {
		if o := alice.ddpbatch(project, args...); o.code < 0 || o.code > 5 {
			t.Errorf("%v: %v", args, o)
		}
	}
}

// hostile is text that a terminal or a browser would act on.
const hostile = "\x1b]0;owned\x07\x1b[2J\u009b31m\u202eevil\u2066<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\r\b\x7f"

// spoil appends hostile text to all strings in JSON, except those that have to be of a form.
func spoil(v any, key string) any {
	switch v := v.(type) {
	case string:
		switch key {
		case "time", "created", "began", "base", "run", "job_id", "format", "digest", "sha256", "addr", "prefix":
			return v
		}
		return v + hostile
	case []any:
		for i := range v {
			v[i] = spoil(v[i], key)
		}
	case map[string]any:
		for k := range v {
			v[k] = spoil(v[k], k)
		}
	}
	return v
}

// testTextOfAForeignRun puts text for a terminal or a browser into the files of another user's run.
// It omits the command logs, because logs copies what the job printed.
func testTextOfAForeignRun(t *testing.T, s *twoUsers) {
	alice, mallory := s.people(t)
	project := s.project(t)
	run := s.finishedRun(t)
	for _, name := range []string{
		"record.json", "live.json", "ended.json", "attempts.jsonl", "network.json", "metrics.jsonl", "logs/rank-00000.jsonl",
		"failure.json", "job.sbatch", "slurm-1.out", "job.toml",
	} {
		received := filepath.Join(project, "runs", strings.ReplaceAll(name, "/", "-"))
		mallory.copyRun(run, received)
		path := filepath.Join(received, name)
		text, err := os.ReadFile(path)
		switch {
		case name == "failure.json":
			text = []byte(`{"time":"2026-01-01T00:00:00Z","attempt":1,"exit":1,"first":{"rank":0,"host":"h","state":"failed","step":1,` +
				`"phase":"p","reason":"r","hint":"h"},"ranks":[{"rank":0,"host":"x","state":"failed","exit":1,"error":"e","step":1,"phase":"p","signal":"S"}]}`)
		case name == "job.sbatch" || name == "slurm-1.out":
			text = []byte("NCCL WARN Connect to 10.0.0.4<56849> returned 113(No route to host)" + hostile + "\n")
		case err != nil:
			t.Fatal(err)
		case name == "job.toml":
			text = append(text, "# \u202e<script>alert(1)</script>\u2066\u009b\n"...)
		}
		if strings.Contains(name, ".json") {
			var spoiled []string
			lines := []string{string(text)}
			if strings.HasSuffix(name, "l") {
				lines = strings.Split(strings.TrimSpace(lines[0]), "\n")
			}
			for _, line := range lines {
				var v any
				if err := json.Unmarshal([]byte(line), &v); err != nil {
					t.Fatal(err)
				}
				line, err := json.Marshal(spoil(v, ""))
				if err != nil {
					t.Fatal(err)
				}
				spoiled = append(spoiled, string(line)+"\n")
			}
			text = []byte(strings.Join(spoiled, ""))
		}
		mallory.write(path, string(text))
		for _, args := range [][]string{
			{"status", received}, {"status", "--json", received}, {"report", received, "-o", "-"}, {"checkpoint", "ls", received},
			{"doctor", "--log", received}, {"trace", "-o", "-", received},
			{"wait", received}, {"top", "--once", received}, {"cancel", received},
		} {
			o := alice.ddpbatch(project, args...)
			mustSteerNothing(t, append(args, name), o)
			if args[0] == "report" && (strings.Contains(o.stdout, "<script") || strings.Contains(o.stdout, "<img")) {
				t.Errorf("%s: the report has an element of the run's", name)
			}
		}
	}
	alice.sh(project, `mkdir -p runs && cp -r "$1" "$2" || true`, run, "runs/n"+strings.NewReplacer("/", "_", "\x00", "").Replace(hostile))
	for _, args := range [][]string{{"status"}, {"status", "--json"}, {"top", "--once"}, {"check", "x\x1b[2J.toml"}, {"status", "a\x1b[31mb"}} {
		mustSteerNothing(t, args, alice.ddpbatch(project, args...))
	}
}
