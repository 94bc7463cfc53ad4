package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

// TestExamplesRun runs each example on one machine, with the changes in the table so that it takes
// seconds. Examples that need more run in TestExamplesOnCluster.
func TestExamplesRun(t *testing.T) {
	elsewhere := map[string]string{
		"gpt2-tokens": "its data are 10 billion tokens: jobs: TestExampleSpecs has it checked, trainer/plan trains its like",
		"mpi":         "TestExamplesOnCluster", "container": "TestExamplesOnCluster",
	}
	for name, c := range map[string]struct {
		set  []string
		want string
	}{
		"cnn":           {[]string{"train.epochs=1", `train.device="cpu"`, `train.log_every="1 epoch"`}, "finished: 1 epoch"},
		"ddp-script":    {[]string{`command.argv=["/usr/bin/python3", "train.py", "--epochs", "2"]`}, "epoch 2/2  loss "},
		"demo":          {[]string{"train.epochs=1"}, "finished: 1 epoch"},
		"fashion-mnist": {[]string{"train.epochs=1", "train.batch=1000", "train.model.hidden=[16]"}, "finished: 1 epoch"},
		"gpt-text":      {[]string{"train.epochs=1", "train.model.width=32", "train.model.layers=1", "train.data.holdout=0.1"}, "finished: 1 epoch"},
		"linear":        {[]string{"train.epochs=1"}, "finished: 1 epoch"},
		"sweep":         {[]string{"train.epochs=1"}, "finished: 1 epoch"},
		// PyTorch 1.13 with Python 3.11 cannot parse its own defaults of these two flags.
		"torchrun": {[]string{`command.argv=["--redirects", "9:1", "--tee", "9:1", "train.py", "--epochs", "2"]`}, "epoch 2/2  loss "},
	} {
		elsewhere[name] = "here"
		t.Run(name, func(t *testing.T) {
			if name == "ddp-script" || name == "torchrun" {
				if exec.Command("/usr/bin/python3", "-c", "import torch").Run() != nil {
					missing(t, "PyTorch, which tests/setup.sh installs")
				}
			}
			if name == "fashion-mnist" {
				if _, err := os.Stat("/usr/share/datasets/fashion-mnist"); err != nil {
					missing(t, "Fashion-MNIST, which tests/setup.sh installs")
				}
			}
			dir := t.TempDir()
			for _, file := range []string{name + ".toml", "train.py", "gpt-text.txt"} {
				text, err := os.ReadFile(filepath.Join("../jobs/examples", file))
				if err == nil {
					err = os.WriteFile(filepath.Join(dir, file), text, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			args := []string{"launch", name + ".toml", "-n", "2"}
			if name == "sweep" {
				args = append(args, "--element", "0")
			}
			for _, s := range c.set {
				args = append(args, "--set", s)
			}
			cmd := exec.CommandContext(t.Context(), binary, args...)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), c.want) {
				t.Errorf("%v; want %q in\n%s", err, c.want, out)
			}
			if name == "ddp-script" || name == "torchrun" { // otherwise, runs of one directory would share it
				if saved, _ := filepath.Glob(filepath.Join(dir, "runs/*/program-checkpoints/checkpoint.pt")); len(saved) != 1 {
					t.Errorf("got checkpoints %q, want one in the run directory", saved)
				}
			}
		})
	}
	files, err := filepath.Glob("../jobs/examples/*.toml")
	if err != nil || len(files) != len(elsewhere) {
		t.Errorf("%d examples (%v), of which %d are tried", len(files), err, len(elsewhere))
	}
	for _, f := range files {
		if elsewhere[strings.TrimSuffix(filepath.Base(f), ".toml")] == "" {
			t.Errorf("%s is tried by no test", f)
		}
	}
}

// TestExamplesOnCluster runs an MPI program on two nodes with srun's own process manager, and the
// container example with a stub of apptainer that runs its arguments.
func TestExamplesOnCluster(t *testing.T) {
	s := newSite(t, cluster.Options{})
	for _, file := range []string{"mpi.toml", "container.toml", "train.py"} {
		text, err := os.ReadFile("../jobs/examples/" + file)
		if err != nil {
			t.Fatal(err)
		}
		s.write(file, string(text))
	}
	if out, err := exec.CommandContext(t.Context(), "gcc", "-o", filepath.Join(s.home, "solver"), "testdata/mpi_sum.c", "-l:libmpich.so.12").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s.write("image.sif", "")
	if err := os.Mkdir(filepath.Join(s.home, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.write("bin/apptainer", fmt.Sprintf("#!/bin/sh\nwhile [ \"$1\" != %s/image.sif ]; do shift; done\nshift\nexec \"$@\"\n", s.home))
	if err := os.Chmod(filepath.Join(s.home, "bin/apptainer"), 0o700); err != nil {
		t.Fatal(err)
	}
	mpi := s.submit("mpi.toml")
	container := s.submit("container.toml", "--set", `setup.container.image="image.sif"`,
		"--set", fmt.Sprintf(`setup.lines=["export PATH=%s/bin:$PATH"]`, s.home),
		"--set", `command.argv=["/usr/bin/python3", "train.py", "--epochs", "2"]`)
	s.completed(mpi)
	for rank := range 4 {
		mustContain(t, s.log("mpi", mpi), fmt.Sprintf("rank %d of 4: the sum is 10\n", rank))
	}
	s.completed(container)
	mustContain(t, s.log("container", container), "epoch 2/2  loss ")
}
