//go:build cuda

package gpusim_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/gpusim"
	"github.com/ddpbatch/ddpbatch/trainer"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
)

// TestSavingOnAGPU checks that a save downloads each array of the state once, in one piece. An
// async checkpoint equals a synchronous one, also without pinned memory, which is reported.
func TestSavingOnAGPU(t *testing.T) {
	gpusim.Require(t)
	const array = 816 // elements: 780 of parameters, and padding in the bucket
	job := func(setting string) string {
		return strings.Replace(trainingJobs["mlp"], `every = "10 steps"`, setting, 1)
	}
	var unpinned []string
	run := func(text string) (saves int, written []string, copied gpusim.Downloads) {
		dir := t.TempDir()
		gpusim.TakeDownloads()
		check(t, observe(t, text, "cuda", dir, nil, func(e trainer.Event) {
			switch e.Kind {
			case trainer.Saved:
				saves++
			case trainer.Unpinned:
				unpinned = append(unpinned, e.String())
			}
		}))
		copied = gpusim.TakeDownloads()
		for _, e := range must[[]checkpoint.Entry](t)(checkpoint.List(dir)) {
			check(t, checkpoint.Verify(t.Context(), e.Path))
			for _, f := range e.Manifest.Files {
				written = append(written, fmt.Sprint(e.Step, f.Name, f.SHA256))
			}
		}
		return saves, written, copied
	}
	const often = "every = \"2 steps\"\nkeep_every = \"2 steps\"\n"
	few, _, least := run(job("every = \"1000 steps\"\nasync = true"))
	many, got, all := run(job(often + "async = true"))
	more := uint64(many - few)
	if copied := all.Number - least.Number; more < 10 || copied != 2*more || all.Bytes-least.Bytes != copied*4*array {
		t.Errorf("%d more saves copied %d arrays of %d bytes in all, of a state of 2 arrays of %d", more, copied, all.Bytes-least.Bytes, 4*array)
	}
	if _, want, _ := run(job(often)); !slices.Equal(got, want) || len(want) < 20 {
		t.Errorf("in the background %q\nwaited for %q", got, want)
	}
	if os.Getenv("GPUSIM_TEST") == "" {
		if len(unpinned) > 0 {
			t.Errorf("told: %q", unpinned)
		}
		if out, err := gpusim.Again(t, t.Name(), "GPUSIM_TEST=1", fmt.Sprint("GPUSIM_FAIL=pin:", 2*4*array)); err != nil {
			t.Errorf("without pinned memory: %v\n%s", err, out)
		}
		return
	}
	if len(unpinned) != 2 || !strings.Contains(unpinned[0], "warning: training waits longer for checkpoints") || !strings.Contains(unpinned[0], "6528 bytes of pinned host memory: CUDA_ERROR_OUT_OF_MEMORY") {
		t.Errorf("told: %q", unpinned)
	}
}
