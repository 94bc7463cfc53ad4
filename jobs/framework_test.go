package jobs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestFrameworkArgv checks the command line of a script with each framework's launcher.
func TestFrameworkArgv(t *testing.T) {
	for _, tt := range []struct {
		name     string
		launcher Launcher
		argv     []string
		want     []string
		err      string // part of the error
	}{
		{"script", LauncherAccelerate, []string{"train.py", "--lr", "1"}, []string{"python3", "train.py", "--lr", "1"}, ""},
		{"interpreter", LauncherLightning, []string{"/venv/bin/python", "-u", "train.py"}, []string{"/venv/bin/python", "-u", "train.py"}, ""},
		{"other program", LauncherLightning, []string{"./run", "x.py"}, []string{"./run", "x.py"}, ""},
		{"DeepSpeed script", LauncherDeepSpeed, []string{"train.py", "--deepspeed"}, []string{"python3", "train.py", "--local_rank=2", "--deepspeed"}, ""},
		{"DeepSpeed interpreter", LauncherDeepSpeed, []string{"python3", "-u", "train.py", "-x"}, []string{"python3", "-u", "train.py", "--local_rank=2", "-x"}, ""},
		{"DeepSpeed module", LauncherDeepSpeed, []string{"python3", "-m", "pkg.train", "-x"}, []string{"python3", "-m", "pkg.train", "--local_rank=2", "-x"}, ""},
		{"DeepSpeed without local rank", LauncherDeepSpeed, []string{"--no_local_rank", "train.py"}, []string{"python3", "train.py"}, ""},
		{"DeepSpeed program", LauncherDeepSpeed, []string{"./run", "-x"}, []string{"./run", "--local_rank=2", "-x"}, ""},
		{"launcher in argv", LauncherAccelerate, []string{"accelerate", "launch", "train.py"}, nil, "already starts each rank"},
		{"launcher module", LauncherDeepSpeed, []string{"python3", "-m", "torch.distributed.run", "train.py"}, nil, "already starts each rank"},
		{"option of a launcher", LauncherDeepSpeed, []string{"--node_rank", "1", "train.py"}, nil, "option of a launcher"},
		{"no script", LauncherDeepSpeed, []string{"--no_local_rank"}, nil, "no script"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Command{Launcher: tt.launcher}
			for _, word := range tt.argv {
				c.Argv = append(c.Argv, Text(word))
			}
			got, err := c.FrameworkArgv(2)
			var wrong *argvError
			if tt.err != "" && (!errors.As(err, &wrong) || !strings.Contains(wrong.message, tt.err) || wrong.allowed == "") || tt.err == "" && err != nil {
				t.Errorf("got error %v, want %q", err, tt.err)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestCheckFramework checks the warnings about parts that do the same as ddpbatch.
func TestCheckFramework(t *testing.T) {
	for _, tt := range []struct {
		name, job, script, want string
	}{
		{"two requeues", "launcher = \"rank\"\n[restart]\nrequeue = 3\n", "Trainer(plugins=[SLURMEnvironment()])\n", "requeues it again"},
		{"requeue is off", "launcher = \"rank\"\n[restart]\nrequeue = 3\n", "Trainer(plugins=[SLURMEnvironment(auto_requeue=False)])\n", ""},
		{"no requeue", "launcher = \"rank\"\n", "Trainer(plugins=[SLURMEnvironment()])\n", ""},
		{"Slurm's environment", "launcher = \"lightning\"\n", "e = SLURMEnvironment(requeue_signal=x)\n", "removes"},
		{"comment", "launcher = \"lightning\"\n", "# e = SLURMEnvironment()\n", ""},
		{"port", "launcher = \"accelerate\"\n", "os.environ['MASTER_PORT'] = '29500'\n", "sets MASTER_PORT"},
		{"port is read", "launcher = \"accelerate\"\n", "p = os.environ['MASTER_PORT']\nif os.environ['MASTER_PORT'] == '1': pass\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "train.py"), []byte(tt.script), 0o600); err != nil {
				t.Fatal(err)
			}
			job, err := Parse("job.toml", []byte("name = \"x\"\n[slurm]\ntime = \"1:0:0\"\n[command]\nargv = [\"python3\", \"train.py\"]\n"+tt.job))
			if err != nil {
				t.Fatal(err)
			}
			errs, warnings := job.CheckProgram(dir)
			if len(errs) > 0 || tt.want == "" && len(warnings) > 0 || !strings.Contains(warnings.Error(), tt.want) {
				t.Errorf("got %v, %v, want %q", errs, warnings, tt.want)
			}
		})
	}
	job, err := Parse("job.toml", []byte("name = \"x\"\n[slurm]\ntasks_per_node = 4\n[command]\nargv = [\"accelerate\", \"launch\", \"train.py\"]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, warnings := job.CheckProgram(t.TempDir()); !strings.Contains(warnings.Error(), "4 times on each node") {
		t.Errorf("accelerate on each rank: %v", warnings)
	}
	job, err = Parse("job.toml", []byte("name = \"x\"\n[command]\nargv = [\"train.py\"]\nlauncher = \"lightning\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "train.py"), []byte("e = SLURMEnvironment()\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, warnings := job.CheckProgram(dir); !strings.Contains(warnings.Error(), "removes") {
		t.Errorf("script as the first word: %v", warnings)
	}
	if job.Command.StopSignal != "TERM" {
		t.Errorf("stop signal for Lightning: got %q", job.Command.StopSignal)
	}
}
