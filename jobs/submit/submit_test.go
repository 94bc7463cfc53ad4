package submit

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

// TestFinishedMeansWhole checks that a run whose last checkpoint is corrupt is not finished,
// whatever state it reports.
func TestFinishedMeansWhole(t *testing.T) {
	for _, file := range []string{"", checkpoint.ModelFile, "manifest.json"} {
		dir := rundir.Dir{Path: t.TempDir()}
		done := slurm.JobState{ID: "7", State: slurm.StateCompleted}
		for step := range 3 {
			tensor := safetensors.Tensor{Name: "w", Shape: []int{1}, Data: []float32{float32(step)}}
			path, err := checkpoint.Save(dir.Checkpoints(), &checkpoint.Manifest{Step: step, Finished: step == 2}, checkpoint.Files{checkpoint.ModelFile: {tensor}})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := isFinished(t.Context(), dir, done); got != (step == 2) || err != nil {
				t.Errorf("step %d: finished is %v, %v", step, got, err)
			}
			if file != "" && step == 2 {
				if err := os.Truncate(filepath.Join(path, file), 60); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got, err := isFinished(t.Context(), dir, done); got != (file == "") || err != nil {
			t.Errorf("%q is damaged, and finished is %v, %v", file, got, err)
		}
	}
	if got, err := isFinished(t.Context(), rundir.Dir{Path: t.TempDir()}, slurm.JobState{State: slurm.StateCompleted}); !got || err != nil {
		t.Error("a program that completed and has no checkpoints")
	}
}
