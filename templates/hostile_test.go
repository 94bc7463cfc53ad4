package templates

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// checkHostile renders a job with the given values and parses the script by sbatch's rules.
// The values must be unchanged, and the script must have as many lines as with plain values.
func checkHostile(t *testing.T, name, partition, constraint, module, conda, dir string) {
	t.Helper()
	in := func(name, partition, constraint, module, conda, dir string) Input {
		job := full()
		job.Name = jobs.Name(name)
		job.Slurm.Partition, job.Slurm.Constraint = jobs.Word(partition), jobs.Text(constraint)
		job.Setup.Lines, job.Setup.Modules, job.Setup.Conda = nil, []jobs.Word{jobs.Word(module)}, jobs.Text(conda)
		return Input{Job: job, Site: generic(t), Binary: "/opt" + dir + "/ddpbatch", RunDir: "/runs" + dir}
	}
	script, err := Render(in(name, partition, constraint, module, conda, dir))
	refusable := slices.ContainsFunc([]string{name, partition, constraint, module, conda, dir}, func(s string) bool {
		return checkControl(s) != nil
	}) || strings.HasPrefix(module, "-") || strings.HasPrefix(conda, "-") || strings.Contains(dir, `\`)
	if refusable {
		if err == nil {
			t.Fatalf("a script was written:\n%s", script)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	plain, err := Render(in("n", given(partition), given(constraint), "m", given(conda), "/d"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := bytes.Count(script, []byte("\n")), bytes.Count(plain, []byte("\n")); got != want {
		t.Fatalf("%d lines, but %d for plain values:\n%s", got, want, script)
	}
	args, err := sbatchArgs(string(script))
	if err != nil {
		t.Fatalf("%v in\n%s", err, script)
	}
	want := map[string]string{"job-name": name, "output": "/runs" + dir + "/slurm-42.out"}
	if partition != "" {
		want["partition"] = partition
	}
	if constraint != "" {
		want["constraint"] = constraint
	}
	plainArgs, err := sbatchArgs(string(plain))
	if err != nil || len(args) != len(plainArgs) {
		t.Fatalf("%q are options, but %q for plain values (%v)", args, plainArgs, err)
	}
	for _, arg := range args {
		option, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if option == "output" {
			value = expandOutput(value)
		}
		if w, ok := want[option]; ok && value != w {
			t.Fatalf("%s is read as %q, want %q, in\n%s", option, value, w, script)
		}
		delete(want, option)
	}
	if len(want) > 0 {
		t.Fatalf("%v is missing from\n%s", want, script)
	}
	checkShellWords(t, script, module, conda, "/opt"+dir+"/ddpbatch", "/runs"+dir)
}

// given returns a placeholder for a value that adds lines only if it is not empty.
func given(value string) string {
	if value == "" {
		return ""
	}
	return "x"
}

// FuzzRender checks that no value of a job file can add a directive or a command to the script.
func FuzzRender(f *testing.F) {
	for _, v := range hostile {
		f.Add(v, v, v, v, v, "/"+v)
	}
	for _, v := range refused {
		f.Add(v, "p", "c", "m", "e", "/d")
		f.Add("n", "p", "c", "m", "e", v)
	}
	f.Fuzz(checkHostile)
}

// TestRunScript runs the script with bash. Fakes of module, conda, and ddpbatch print their
// arguments.
func TestRunScript(t *testing.T) {
	for _, value := range []string{"plain", "a b", `it's "so"`, "$(touch pwned)", "`touch pwned`; touch pwned", "a#b", "%j*?[a]", "日本 ~"} {
		t.Run(value, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), value)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			// Like the real one, conda's shell code defines a function, and both fail under
			// `set -u`.
			write(t, dir, "conda", `#!/bin/sh
test "$*" = "shell.bash hook" && echo 'conda() { printf "conda <%s>\n" "$@" "$UNSET_BY_CONDA"; }'`)
			write(t, dir, "ddpbatch", "#!/bin/sh\nprintf 'ddpbatch <%s>\\n' \"$@\"; kill -0 \"$BATCH_PID\" && test $$ = \"$BATCH_PID\" && echo same process\n")
			job := full()
			job.Setup.Lines, job.Setup.Modules, job.Setup.Conda = nil, []jobs.Word{"m1", jobs.Word(value)}, jobs.Text(value)
			script, err := Render(Input{Job: job, Site: generic(t), Binary: filepath.Join(dir, "ddpbatch"), RunDir: dir})
			if err != nil {
				t.Fatal(err)
			}
			checkShell(t, script)
			write(t, dir, "job.sbatch", string(script))
			cmd := exec.Command("bash", "-c", `export BATCH_PID=$$; exec bash "$1"`, "bash", filepath.Join(dir, "job.sbatch"))
			cmd.Dir = dir
			cmd.Env = []string{"PATH=" + dir + ":/usr/bin:/bin", `BASH_FUNC_module%%=() { printf 'module <%s>\n' "$@" "$UNSET_BY_MODULE"; }`}
			out, err := cmd.CombinedOutput()
			want := "module <load>\nmodule <m1>\nmodule <>\nmodule <load>\nmodule <" + value + ">\nmodule <>\n" +
				"conda <activate>\nconda <" + value + ">\nconda <>\n" +
				"ddpbatch <launch>\nddpbatch <--run-dir>\nddpbatch <" + dir + ">\nsame process\n"
			if err != nil || string(out) != want {
				t.Errorf("%v, got\n%s\nwant\n%s", err, out, want)
			}
			if _, err := os.Stat(filepath.Join(dir, "pwned")); err == nil {
				t.Error("a value was run as a command")
			}
		})
	}
}

// TestScriptStopsAtFailure checks that the job stops if a module cannot be loaded or conda is
// missing. It must not run in the wrong environment.
func TestScriptStopsAtFailure(t *testing.T) {
	for name, body := range map[string]string{
		"module": `false`, "conda": `true`,
	} {
		dir := t.TempDir()
		write(t, dir, "ddpbatch", "#!/bin/sh\necho started\n")
		script, err := Render(Input{Job: full(), Site: generic(t), Binary: filepath.Join(dir, "ddpbatch"), RunDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("bash")
		cmd.Stdin = bytes.NewReader(script)
		cmd.Env = []string{"PATH=" + dir, "BASH_FUNC_module%%=() { " + body + "; }"}
		if out, err := cmd.CombinedOutput(); err == nil || strings.Contains(string(out), "started") {
			t.Errorf("without %s: %v, %s", name, err, out)
		}
	}
}

// TestScriptStopsInTmp checks that the setup does not run in /tmp, where Slurm starts a script if the
// directory of the job is missing on the node. Other users can create files there.
func TestScriptStopsInTmp(t *testing.T) {
	bin := t.TempDir()
	write(t, bin, "ddpbatch", "#!/bin/sh\necho started\n")
	lines, steps, none := bare(), bare(), bare()
	lines.Setup.Lines = []jobs.Text{"echo setup"}
	steps.Setup.Steps = []jobs.SetupStep{{Run: "echo setup"}}
	const failure = "ddpbatch: error: Slurm started the job on n1 in /tmp, not in /missing/a\\ b: the directory is missing or not accessible\n"
	for _, tt := range []struct {
		name      string
		job       *jobs.Job
		submitDir string
		dir, want string
	}{
		{"lines", lines, "/missing/a b", "/tmp", failure},
		{"steps", steps, "/missing/a b", "/tmp", failure},
		{"no setup", none, "/missing/a b", "/tmp", "started\n"},
		{"submitted in /tmp", lines, "/tmp/.", "/tmp", "setup\nstarted\n"},
		{"sbatch --chdir", lines, "/missing/a b", bin, "setup\nstarted\n"},
		{"without Slurm", lines, "", "/tmp", "setup\nstarted\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			script, err := Render(Input{Job: tt.job, Site: generic(t), Binary: filepath.Join(bin, "ddpbatch"), RunDir: bin})
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("bash")
			cmd.Stdin, cmd.Dir = bytes.NewReader(script), tt.dir
			cmd.Env = []string{"PATH=/usr/bin:/bin", "SLURMD_NODENAME=n1"}
			if tt.submitDir != "" {
				cmd.Env = append(cmd.Env, "SLURM_SUBMIT_DIR="+tt.submitDir)
			}
			out, err := cmd.CombinedOutput()
			if (err != nil) != (tt.want == failure) || string(out) != tt.want {
				t.Errorf("%v, got\n%s\nwant\n%s", err, out, tt.want)
			}
		})
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
}
