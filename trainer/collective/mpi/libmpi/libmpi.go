// Package libmpi finds, loads, and calls the MPI library of this machine, without a C compiler.
//
// It supports Open MPI (from version 3) and the libraries with MPICH's ABI: MPICH from version 3,
// Cray MPICH, Intel MPI, and MVAPICH. Open MPI's handles are addresses of structs that the library
// exports; MPICH's are integers that its mpi.h defines. Here both are a [Handle]. Each MPI function
// is a method of [Library] with the same name. Counts must fit a C int. Error codes become errors
// with the text of MPI_Error_string.
//
// Loading a library runs its initialization, which may change the signal handlers of the process.
// [Library.Init] restores them: UCX, which MPICH uses, replaces the handlers of SIGSEGV, SIGUSR1,
// and other signals in a way that is incompatible with the Go runtime.
//
// Limits:
//   - Calls are not serialized; the package requests MPI_THREAD_SERIALIZED.
//   - The package does not depend on Go's collectives, never calls MPI_Abort, and cannot unload a
//     library.
//   - A program that imports it is linked dynamically to glibc, with or without cgo.
package libmpi

import (
	"fmt"
	"strings"
	"unsafe"
)

// Flavor is the ABI of a library.
type Flavor string

// The flavors are:
const (
	OpenMPI Flavor = "Open MPI"
	MPICH   Flavor = "MPICH"
)

// Handle is a communicator, datatype, operation, or request.
type Handle uint64

// constants holds the constants of an ABI, from its mpi.h.
type constants struct {
	world, errorsReturn Handle
	inPlace             uintptr
	statusIgnore        uintptr
	anySource           int32
	tagUB               int32
}

// Type is an MPI datatype of fixed size.
type Type int

// The two-byte types also transport bits that have no MPI type.
const (
	Byte Type = iota
	Float
	Double
	Int8
	Uint8
	Uint16
	Int32
	Uint32
	Int64
	Uint64
)

// typeTable contains the symbols of Open MPI and the handles of MPICH.
var typeTable = [...]struct {
	symbol string
	mpich  Handle
}{
	{"ompi_mpi_byte", 0x4c00010d}, {"ompi_mpi_float", 0x4c00040a}, {"ompi_mpi_double", 0x4c00080b},
	{"ompi_mpi_int8_t", 0x4c000137}, {"ompi_mpi_uint8_t", 0x4c00013b},
	{"ompi_mpi_uint16_t", 0x4c00023c},
	{"ompi_mpi_int32_t", 0x4c000439}, {"ompi_mpi_uint32_t", 0x4c00043d},
	{"ompi_mpi_int64_t", 0x4c00083a}, {"ompi_mpi_uint64_t", 0x4c00083e},
}

// Op is a predefined reduction of MPI.
type Op int

// The reductions are:
const (
	Sum Op = iota
	Max
	Min
	Product
)

var opTable = [...]struct {
	symbol string
	mpich  Handle
}{
	{"ompi_mpi_op_sum", 0x58000003}, {"ompi_mpi_op_max", 0x58000001}, {"ompi_mpi_op_min", 0x58000002}, {"ompi_mpi_op_prod", 0x58000004},
}

// Library is a loaded MPI library.
type Library struct {
	// Path is the name that it was loaded with.
	Path   string
	Flavor Flavor
	// Version is the first line of MPI_Get_library_version.
	Version string

	constants
	types [len(typeTable)]Handle
	ops   [len(opTable)]Handle
	functions
	signals saved
}

// Type returns the handle of a datatype.
func (l *Library) Type(t Type) Handle { return l.types[t] }

// Op returns the handle of a reduction.
func (l *Library) Op(o Op) Handle { return l.ops[o] }

// World returns MPI_COMM_WORLD.
func (l *Library) World() Handle { return l.world }

// Error is the error of a failed call.
type Error struct {
	Function string // such as "MPI_Iallreduce"
	Code     int
	Text     string // text of MPI_Error_string
}

// Error returns the function, the library's message, and the code.
func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s (code %d)", e.Function, e.Text, e.Code)
}

// open loads the library with the given name and resolves its symbols.
func open(name string) (*Library, error) {
	l := &Library{Path: name}
	l.signals = saveSignals()
	handle, err := load(name)
	if err != nil {
		return nil, err
	}
	// If this library is not used, undo the changes to the signal handlers.
	defer func() {
		if l.Version == "" {
			l.signals.restore()
		}
	}()
	if err := l.functions.find(handle); err != nil {
		return nil, fmt.Errorf("%s is not an MPI library: %w", name, err)
	}
	if world, ok := symbol(handle, "ompi_mpi_comm_world"); ok {
		err = l.openMPI(handle, world)
	} else {
		l.mpich()
	}
	if err != nil {
		return nil, err
	}
	text := make([]byte, 8192) // MPI_MAX_LIBRARY_VERSION_STRING is 256 in Open MPI, 8192 in MPICH
	var n int32
	if err := l.check("MPI_Get_library_version", call(l.getLibraryVersion, uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(&n)))); err != nil {
		return nil, err
	}
	l.Version = version(string(text[:n]))
	return l, nil
}

// version extracts name and version from the library's version string: "Open MPI v4.1.4, package:
// ..." or "MPICH Version:\t4.0.2\nMPICH Release date: ...".
func version(text string) string {
	text, _, _ = strings.Cut(strings.TrimRight(text, "\x00\n"), "\n")
	text, _, _ = strings.Cut(text, ", package")
	text = strings.Join(strings.Fields(strings.Replace(text, "Version:", "", 1)), " ")
	if text == "" {
		return "unknown version"
	}
	return text
}

// openMPI sets the constants of Open MPI, whose handles are addresses of symbols. world is the address
// of MPI_COMM_WORLD.
func (l *Library) openMPI(handle, world uintptr) error {
	l.Flavor = OpenMPI
	l.constants = constants{world: Handle(world), inPlace: 1, statusIgnore: 0, anySource: -1, tagUB: 0}
	need := func(name string, h *Handle) error {
		p, ok := symbol(handle, name)
		if !ok {
			return fmt.Errorf("%s is an Open MPI library without the symbol %s", l.Path, name)
		}
		*h = Handle(p)
		return nil
	}
	err := need("ompi_mpi_errors_return", &l.errorsReturn)
	for i := range typeTable {
		if err == nil {
			err = need(typeTable[i].symbol, &l.types[i])
		}
	}
	for i := range opTable {
		if err == nil {
			err = need(opTable[i].symbol, &l.ops[i])
		}
	}
	return err
}

// mpich sets the constants of MPICH, which are the same in every library with MPICH's ABI.
func (l *Library) mpich() {
	l.Flavor = MPICH
	l.constants = constants{world: 0x44000000, errorsReturn: 0x54000001, inPlace: ^uintptr(0), statusIgnore: 1,
		anySource: -2, tagUB: 0x64400001}
	for i := range typeTable {
		l.types[i] = typeTable[i].mpich
	}
	for i := range opTable {
		l.ops[i] = opTable[i].mpich
	}
}
