package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
)

// digests are the SHA-256 digests that must be equal on all ranks of an attempt.
type digests struct {
	program string // of this executable
	spec    string // of the job file
}

// digestsFor returns the digests of a rank. Spec is the content of its job file.
func digestsFor(spec []byte) (digests, error) {
	executable, err := os.Executable()
	if err != nil {
		return digests{}, err
	}
	program, err := fileDigest(executable)
	return digests{program, rundir.Digest(spec)}, err
}

// fileDigest returns the SHA-256 digest of a file in hexadecimal.
func fileDigest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read %q: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
