package slurm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTestOnly(t *testing.T) {
	f := newFakeSlurm(t, map[string]string{"sbatch": `/bin/cat >"$FAKE/script"; echo "sbatch: Job 7 to start at noon" >&2`})
	answer, err := f.TestOnly(t.Context(), []byte("#!/bin/sh\n"), t.TempDir())
	if err != nil || answer != "Job 7 to start at noon" {
		t.Errorf("%q, %v", answer, err)
	}
	if got, err := os.ReadFile(filepath.Join(f.dir, "script")); err != nil || string(got) != "#!/bin/sh\n" {
		t.Errorf("sbatch read %q, %v", got, err)
	}
	f = newFakeSlurm(t, map[string]string{"sbatch": `echo "sbatch: error: invalid partition specified: gpu" >&2; exit 1`})
	if _, err := f.TestOnly(t.Context(), nil, t.TempDir()); err == nil || !strings.Contains(err.Error(), "invalid partition specified: gpu") {
		t.Errorf("got %v", err)
	}
}
