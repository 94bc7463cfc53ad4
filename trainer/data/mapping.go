package data

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"runtime/debug"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapping is a file as memory that cannot be written. The system reads a page of
// it when it is needed and drops it when memory is short. The memory is given back
// when nothing refers to the mapping any more, whatever refers to the content.
type mapping struct {
	path    string
	info    fs.FileInfo
	content []byte
}

// mapFile maps a file that is not empty.
func mapFile(path string) (*mapping, error) {
	f, info, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info.Size() == 0 {
		return nil, fmt.Errorf("read %q: at byte 0: the file is empty", path)
	}
	content, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %q: %w", path, err)
	}
	m := &mapping{path, info, content}
	runtime.AddCleanup(m, func(content []byte) { unix.Munmap(content) }, content)
	return m, nil
}

// mappings are files that are read together. Reading a page can fail: the disk may
// have an error, or somebody made the file shorter. The processor then faults,
// which by itself ends the program without a word about the file.
type mappings []*mapping

// guard calls read, which reads the files, and returns a fault as an error.
func (ms mappings) guard(read func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			if err = ms.fault(r); err == nil {
				panic(r)
			}
		}
	}()
	return read()
}

// fault returns the error behind a panic that is a fault in one of the files.
func (ms mappings) fault(r any) error {
	err, _ := r.(error)
	fault, ok := errors.AsType[interface {
		error
		Addr() uintptr
	}](err)
	if !ok {
		return nil
	}
	for _, m := range ms {
		begin := uintptr(unsafe.Pointer(unsafe.SliceData(m.content)))
		if at := fault.Addr() - begin; at < uintptr(len(m.content)) {
			return &hintError{
				fmt.Errorf("read %q: at byte %d: cannot be read any more", m.path, at),
				"was the file made shorter since it was opened, or does the disk have errors? write a new file beside it instead of changing one in use",
			}
		}
	}
	return nil
}
