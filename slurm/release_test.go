package slurm

import (
	"os"
	"path/filepath"
	"testing"
)

func TestRelease(t *testing.T) {
	for said, want := range map[string]string{
		"slurm 23.11.4": "23.11.4", "slurm-wlm 22.05.8": "22.05.8", "slurm 25.05.0-0rc1": "25.05.0-0rc1", "no idea": "", "": "",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "sbatch"), []byte("#!/bin/sh\necho '"+said+"'\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		got, err := Client{Environ: []string{"PATH=" + dir + ":/bin"}}.Release(t.Context())
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v", said, got, err)
		}
	}
}
