// Package segment implements memory that processes of one node share: files in /dev/shm that one
// process creates and the others map.
//
// Guarantees:
//   - Only the user can access a segment (mode 0600), and a segment is always new (O_EXCL).
//   - The memory of a segment is allocated before use, so that a full /dev/shm is an error and not
//     a SIGBUS.
//   - Open maps the file that was created and no other.
//   - A name exists only until it is unlinked, which should happen as soon as all processes have
//     mapped it. [Create] removes names that are older than a minute and whose creator was killed.
//     With more than 10,000 files in /dev/shm, it may miss some.
//
// The package does not synchronize access. It supports only Linux.
package segment

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
)

// prefix is the start of all segment names.
const prefix = "ddpbatch-"

// directory is the location of segments.
const directory = "/dev/shm"

// maxSweepNames limits the names in directory that one process reads. Other users can create any
// number of files there.
const maxSweepNames = 10_000

// mark identifies a segment to the processes that open it: a container with a separate /dev/shm may
// have a file of the same name.
type mark [16]byte

// headerSize is the size in bytes of the reserved header of a segment.
const headerSize = 64

// A Segment is mapped memory. It begins with a header of headerSize bytes.
type Segment struct {
	// Name is the argument of [Open], in this and other processes.
	Name   string
	memory []byte
	file   *os.File // its lock shows that the creator is alive; nil in other processes
}

// Bytes returns the memory after the header, aligned to a cache line.
func (s *Segment) Bytes() []byte { return s.memory[headerSize:] }

// Create creates a segment of n zero bytes.
func Create(n int) (*Segment, error) {
	var m mark
	if _, err := rand.Read(m[:]); err != nil {
		return nil, fmt.Errorf("generate a name: %w", err)
	}
	sweep(directory, maxSweepNames)
	s, err := create(fmt.Sprintf("%s%x", prefix, m), n+headerSize)
	if err != nil {
		return nil, fmt.Errorf("share %d bytes in %s: %w", n, directory, err)
	}
	copy(s.memory, m[:])
	return s, nil
}

// Open maps a segment of n bytes that another process has created.
func Open(name string, n int) (*Segment, error) {
	var m mark
	digits, hasPrefix := strings.CutPrefix(name, prefix)
	if k, err := hex.Decode(m[:], []byte(digits)[:min(len(digits), 2*len(m))]); !hasPrefix || err != nil || k != len(m) || len(digits) != 2*len(m) {
		return nil, fmt.Errorf("invalid segment name %q", name)
	}
	s, err := open(name, n+headerSize)
	if err != nil {
		return nil, fmt.Errorf("map %q in %s: %w", name, directory, err)
	}
	if mark(s.memory[:len(m)]) != m {
		_ = s.Unmap()
		return nil, fmt.Errorf("map %q in %s: a different file has this name", name, directory)
	}
	return s, nil
}
