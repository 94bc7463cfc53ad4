package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ddpbatch/ddpbatch/internal/exitcode"
)

// Replicas records whether the ranks compared the contents of a checkpoint before they saved it.
type Replicas string

// The values of [Replicas]. Manifests of older versions of the program have no value.
const (
	ReplicasCompared Replicas = "compared" // several ranks had equal values
	ReplicasNone     Replicas = "none"     // no value was on more than one rank
)

// computeFullDigest returns the value that FullDigest must have in a manifest with this text.
func computeFullDigest(text []byte) (string, error) {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &fields); err != nil {
		return "", err
	}
	delete(fields, "digest")
	delete(fields, "full_digest")
	text, err := json.Marshal(fields) // sorted by name, without spaces
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// encode sets the digests of the manifest and returns its text.
func (m *Manifest) encode() ([]byte, error) {
	var err error
	if m.Digest, err = m.computeDigest(); err != nil {
		return nil, err
	}
	m.FullDigest = ""
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if m.FullDigest, err = computeFullDigest(text); err != nil {
		return nil, err
	}
	text, err = json.MarshalIndent(m, "", "  ")
	return append(text, '\n'), err
}

// decodeManifest is the inverse of encode.
func decodeManifest(text []byte) (*Manifest, error) {
	// Check the format first: a later format may have other types in its fields.
	var head struct {
		Format  int    `json:"format"`
		Program string `json:"program"`
	}
	if err := json.Unmarshal(text, &head); head.Format > Format {
		return nil, NewerError{head.Format, head.Program}
	} else if err != nil {
		return nil, err
	}
	var m Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, err
	}
	if m.Format != Format {
		return nil, fmt.Errorf("format %d is not supported; this program reads format %d", m.Format, Format)
	}
	if sum, err := m.computeDigest(); err != nil || sum != m.Digest {
		return nil, errors.New("corrupt manifest: its digest does not match")
	}
	if m.FullDigest != "" || m.Replicas != "" || m.Layout != "" {
		if sum, err := computeFullDigest(text); err != nil || sum != m.FullDigest {
			return nil, errors.New("corrupt manifest: its full digest does not match")
		}
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	return &m, nil
}

// A NewerError reports a checkpoint that a newer version of the program wrote in a format that this
// version cannot read. Such a checkpoint is not corrupt: no run may skip it, and it is never
// removed.
type NewerError struct {
	Format  int    // larger than [Format]
	Program string // version that wrote it, if the manifest has it
}

func (e NewerError) Error() string {
	by := ""
	if e.Program != "" {
		by = fmt.Sprintf(" (version %s)", e.Program)
	}
	return fmt.Sprintf("written by a newer ddpbatch%s: it has format %d, and this version reads format %d", by, e.Format, Format)
}

// Hint returns the fix.
func (NewerError) Hint() string {
	return "resume with the newer ddpbatch, or train in a different run directory (--run-dir)"
}

// ExitCode returns the exit code for a run without a usable checkpoint.
func (NewerError) ExitCode() int { return exitcode.NoCheckpoint }

// IsNewer reports whether a newer version of the program wrote the checkpoint.
func (e Entry) IsNewer() bool { return errors.As(e.Err, &NewerError{}) }
