package data

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"runtime/debug"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// mapping is a file mapped read-only into memory. The kernel reads pages on demand and drops them
// under memory pressure. The memory is unmapped when the mapping is unreachable, even if the
// content is still referenced.
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

// mappings are files that are read together. Reading a page can fail: the disk may have an error,
// or the file may have been truncated. The CPU then faults, which by default kills the program
// without naming the file.
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

// fault returns an error if the panic value r is a fault in one of the files, otherwise nil.
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
			return hints.Errorf("check whether the file was truncated or the disk has errors; write a new file instead of changing one in use",
				"read %q: at byte %d: can no longer be read", m.path, at)
		}
	}
	return nil
}
