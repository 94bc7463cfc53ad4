package libnccl

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/library"
)

// A Library is a loaded libnccl.
type Library struct {
	// File is the path of the library, or only its name if the path is unknown.
	File    string
	Version Version
	f       functions
}

// notFound means that no usable NCCL was found.
type notFound struct{ error }

// Hint returns the fix.
func (notFound) Hint() string {
	return "load your center's module of NCCL or CUDA, install NCCL (`pip install nvidia-nccl-cu12`, or the package libnccl2), or set LD_LIBRARY_PATH to its directory"
}

// Open loads the first candidate that is NCCL [Oldest] or later. A candidate is a path, or a name for
// the dynamic linker.
func Open(candidates []string) (*Library, error) {
	var reasons []string
	for _, candidate := range candidates {
		l, err := load(candidate)
		if err == nil {
			return l, nil
		}
		reasons = append(reasons, err.Error())
	}
	return nil, notFound{errors.New("load NCCL: " + strings.Join(reasons, "; "))}
}

func load(candidate string) (*Library, error) {
	loaded, err := library.Open([]string{candidate})
	if err != nil {
		return nil, err
	}
	l := &Library{File: loaded.Path}
	if lacks := l.f.bind(loaded); lacks != "" && l.f.getVersion == nil {
		return nil, fmt.Errorf("%s is not NCCL: symbol %s is missing", l.File, lacks)
	} else if err := l.readVersion(); err != nil {
		return nil, fmt.Errorf("%s: %w", l.File, err)
	} else if lacks != "" || l.Version < Oldest {
		if lacks == "" {
			lacks = "nonblocking communicators"
		}
		return nil, fmt.Errorf("%s is NCCL %v, which lacks %s: version %v or later is required", l.File, l.Version, lacks, Oldest)
	}
	return l, nil
}

func (l *Library) readVersion() error {
	var v int32
	if r := l.f.getVersion(&v); r != Success {
		return fmt.Errorf("ncclGetVersion: %v", r)
	}
	l.Version = Version(v)
	return nil
}

// text converts a C string.
func text(p *byte) string {
	if p == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}
