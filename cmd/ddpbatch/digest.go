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
	_, program, err := findProgram()
	return digests{program, rundir.Digest(spec)}, err
}

// findProgram returns the path of this executable, and its SHA-256 digest in hexadecimal.
func findProgram() (path, digest string, err error) {
	if path, err = os.Executable(); err != nil {
		return "", "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", "", fmt.Errorf("read %q: %w", path, err)
	}
	return path, hex.EncodeToString(h.Sum(nil)), nil
}
