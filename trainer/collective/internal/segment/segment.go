// Package segment is memory that processes of one node share: files in /dev/shm that
// one process creates and the others map.
//
// It promises: a segment is the user's alone (mode 0600) and new (O_EXCL), its memory
// is there before it is used, so that a full /dev/shm is an error and not a SIGBUS, and
// who opens one gets the file that was created and no other. A name exists only until
// it is unlinked, which is to be done as soon as all have mapped it; one that a killed
// process left behind is removed by the next [Create] after a minute.
//
// It does not synchronise, and has no memory to share on other systems than Linux.
package segment

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
)

// prefix is what the names of all segments begin with.
const prefix = "ddpbatch-"

// Directory is where segments are.
const Directory = "/dev/shm"

// mark is what a creator writes into a segment for those who open it: a container that
// has a /dev/shm of its own may have a file of the same name.
type mark [16]byte

// Head is the bytes at the start of a segment that are not the user's.
const Head = 64

// Segment is mapped memory. It begins with [Head] bytes that are not the user's.
type Segment struct {
	// Name is what [Open] takes, in this and other processes.
	Name   string
	memory []byte
	file   *os.File // whose lock says that the creator lives; nil in others
}

// Bytes is the memory after the head, aligned for a cache line.
func (s *Segment) Bytes() []byte { return s.memory[Head:] }

// Create makes a segment of n bytes, all zero.
func Create(n int) (*Segment, error) {
	var m mark
	if _, err := rand.Read(m[:]); err != nil {
		return nil, fmt.Errorf("draw a name: %w", err)
	}
	sweep()
	s, err := create(fmt.Sprintf("%s%x", prefix, m), n+Head)
	if err != nil {
		return nil, fmt.Errorf("share %d bytes in %s: %w", n, Directory, err)
	}
	copy(s.memory, m[:])
	return s, nil
}

// Open maps a segment of n bytes that another process has created.
func Open(name string, n int) (*Segment, error) {
	var m mark
	digits, ours := strings.CutPrefix(name, prefix)
	if k, err := hex.Decode(m[:], []byte(digits)[:min(len(digits), 2*len(m))]); !ours || err != nil || k != len(m) || len(digits) != 2*len(m) {
		return nil, fmt.Errorf("%q is no name of a segment", name)
	}
	s, err := open(name, n+Head)
	if err != nil {
		return nil, fmt.Errorf("map %q in %s: %w", name, Directory, err)
	}
	if mark(s.memory[:len(m)]) != m {
		_ = s.Unmap()
		return nil, fmt.Errorf("map %q in %s: it is another file of that name", name, Directory)
	}
	return s, nil
}
