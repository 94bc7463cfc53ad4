package sbatch

import (
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// TestKeptScripts checks that a job runs a script itself only if the script does the same in the job.
func TestKeptScripts(t *testing.T) {
	const unknown = "srun $UNKNOWN python train.py\n" // cannot be wrapped
	for name, test := range map[string]struct {
		script string
		argv   []string // nil if the job must not run the script
	}{
		"options unknown":        {"#!/bin/bash\n#SBATCH --ntasks=2\n" + unknown, []string{"/bin/bash", "s/train.sh"}},
		"options of the shell":   {"#!/bin/bash -l\n#SBATCH --ntasks=2\n" + unknown, []string{"/bin/bash", "-l", "s/train.sh"}},
		"different shell":        {"#!/bin/tcsh -f\n#SBATCH --ntasks=2\nsetenv A 1\nsrun python train.py\n", []string{"/bin/tcsh", "-f", "s/train.sh"}},
		"directory":              {"#!/bin/bash\n#SBATCH --ntasks=2 --chdir=/data\n" + unknown, []string{"/bin/bash", "/home/ada/project/s/train.sh"}},
		"wrapped script":         {"#!/bin/bash\n#SBATCH --ntasks=2\nsrun python train.py\ncp a b\n", nil},
		"no program":             {"#!/bin/bash\n#SBATCH --ntasks=2\necho hello\n", nil},
		"own path":               {"#!/bin/bash\n#SBATCH --ntasks=2\ncd $(dirname $0)\n" + unknown, nil},
		"no interpreter":         {"#SBATCH --ntasks=2\n" + unknown, nil},
		"no directives":          {"#!/bin/bash\nsbatch <<E\n#SBATCH --ntasks=2\nE\n", nil},
		"syntax error":           {"#!/bin/bash\n#SBATCH --ntasks=2\nif\n" + unknown, nil},
		"tasks empty":            {"#!/bin/bash\n#SBATCH --nodes=2\necho $SLURM_NTASKS\n" + unknown, nil},
		"tasks known":            {"#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=1\necho $SLURM_NTASKS_PER_NODE\n" + unknown, []string{"/bin/bash", "s/train.sh"}},
		"uneven tasks":           {"#!/bin/bash\n#SBATCH --nodes=2 --ntasks=3\n" + unknown, nil},
		"GPUs of tasks":          {"#!/bin/bash\n#SBATCH --ntasks=2 --gpus-per-task=1\n" + unknown, nil},
		"cores of GPUs":          {"#!/bin/bash\n#SBATCH --gres=gpu:2 --cpus-per-gpu=2\n" + unknown, nil},
		"signal":                 {"#!/bin/bash\n#SBATCH --ntasks=2 --signal=B:USR1@60\ntrap 'exit 1' USR1\n" + unknown, nil},
		"array without a sweep":  {"#!/bin/bash\n#SBATCH --array=0-3\necho $SLURM_ARRAY_TASK_MAX\n" + unknown, nil},
		"nodes unknown":          {"#!/bin/bash\n#SBATCH --nodes=2-4\n" + unknown, nil},
		"container of the batch": {"#!/bin/bash\n#SBATCH --ntasks=2 --container-image=a.sqsh\n" + unknown, nil},
		"submits itself":         {"#!/bin/bash\n#SBATCH --ntasks=2\nsbatch --dependency=afterany:$SLURM_JOB_ID train.sh\n" + unknown, nil},
	} {
		t.Run(name, func(t *testing.T) {
			options := testOptions
			options.Path = "s/train.sh"
			result, err := Read("train.sh", []byte(test.script), options)
			if err != nil {
				t.Fatal(err)
			}
			job, err := jobs.Parse("job.toml", result.TOML)
			if err != nil {
				t.Fatal(err)
			}
			var argv []string
			for _, a := range job.Command.Argv {
				argv = append(argv, string(a))
			}
			isKept := strings.Contains(strings.Join(argv, " "), "s/train.sh")
			switch {
			case test.argv == nil && isKept:
				t.Errorf("the job runs the script: %q", argv)
			case test.argv == nil && result.Changes() == 0:
				t.Errorf("no note changes what runs: %+v", result.Notes)
			case test.argv != nil && (!slices.Equal(argv, test.argv) || !job.RunsOnce() || result.Changes() > 0):
				t.Errorf("got argv %q, run once %v, %d changes; want %q, true, 0", argv, job.RunsOnce(), result.Changes(), test.argv)
			}
		})
	}
}

// TestKeptScriptShowsReason checks that the first note has the reason for running the script, without
// notes of the failed conversion, which are about ranks that the job does not start.
func TestKeptScriptShowsReason(t *testing.T) {
	const head = "#!/bin/bash\n#SBATCH --ntasks=2\n#SBATCH --parsable\nexport TOKEN=abcdef123456\n"
	for name, test := range map[string]struct{ line, text, reason string }{
		"options":        {"srun $UNKNOWN python train.py", "the job runs the script itself because of line 5", "cannot tell the options"},
		"standard input": {"srun --multi-prog conf < data", "the job runs the script itself because of line 5", "the program has no standard input"},
	} {
		t.Run(name, func(t *testing.T) {
			options := testOptions
			options.Path = "train.sh"
			result, err := Read("train.sh", []byte(head+test.line+"\n"), options)
			if err != nil {
				t.Fatal(err)
			}
			if len(result.Notes) == 0 || result.Notes[0].Text != test.text || !strings.Contains(result.Notes[0].Reason, test.reason) {
				t.Fatalf("got %+v, want first %q with the reason %q", result.Notes, test.text, test.reason)
			}
			if n := result.Notes[0]; n.Line != 0 || !strings.HasSuffix(n.Reason, keptReason) {
				t.Errorf("got line %d and the reason %q", n.Line, n.Reason)
			}
			for _, n := range result.Notes[1:] {
				if n.Line >= 5 {
					t.Errorf("a note is about a part that the job runs: %+v", n)
				}
			}
			if strings.Contains(string(result.TOML), "abcdef") {
				t.Errorf("the job file has a secret: %s", result.TOML)
			}
		})
	}
}
