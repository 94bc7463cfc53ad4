package libnccl

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/library"
)

// Library is a libnccl that is loaded.
type Library struct {
	// File is where it was found; the name alone if that is not known.
	File    string
	Version Version
	f       functions
}

// notFound is a machine without an NCCL that will do.
type notFound struct{ error }

// Hint says what to do about it.
func (notFound) Hint() string {
	return "load the module of NCCL or CUDA that the centre offers, or install it (pip install nvidia-nccl-cu12, or the package libnccl2), or set LD_LIBRARY_PATH to its folder"
}

// Open loads the first of some places, files or names that the dynamic linker looks
// for, that is an NCCL from [Oldest] on.
func Open(places []string) (*Library, error) {
	var errs []error
	for _, place := range places {
		l, err := load(place)
		if err == nil {
			return l, nil
		}
		errs = append(errs, err)
	}
	return nil, notFound{fmt.Errorf("load NCCL: %w", errors.Join(errs...))}
}

func load(place string) (*Library, error) {
	loaded, err := library.Open([]string{place})
	if err != nil {
		return nil, err
	}
	l := &Library{File: loaded.Path}
	if lacks := l.f.bind(loaded); lacks != "" && l.f.getVersion == nil {
		return nil, fmt.Errorf("%s is no NCCL: it has no %s", l.File, lacks)
	} else if err := l.readVersion(); err != nil {
		return nil, fmt.Errorf("%s: %w", l.File, err)
	} else if lacks != "" || l.Version < Oldest {
		if lacks == "" {
			lacks = "communicators that do not block"
		}
		return nil, fmt.Errorf("%s is NCCL %v, which lacks %s: %v or later is needed", l.File, l.Version, lacks, Oldest)
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

// text is a string of C's.
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
