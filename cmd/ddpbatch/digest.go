package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
)

// digests are what all ranks of an attempt must have in common.
type digests struct {
	program string // of this executable
	spec    string // of the job file
}

func digestsOf(spec string) (digests, error) {
	executable, err := os.Executable()
	if err != nil {
		return digests{}, err
	}
	var d digests
	if d.program, err = fileDigest(executable); err == nil {
		d.spec, err = fileDigest(spec)
	}
	return d, err
}

// fileDigest is the SHA-256 of a file, in hexadecimal.
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
