package libmpi

import "fmt"

// functions holds the addresses of the MPI functions that this package calls.
type functions struct {
	getLibraryVersion, initialized, initThread, finalize                                          uintptr
	errorString, commSetErrhandler, commRank, commSize, commDup, commSplit, commFree, commGetAttr uintptr
	opCreate, test, cancel, ibcast, ireduce, iallreduce, ireduceScatterBlock, iallgather          uintptr
	igather, iscatter, ialltoall, isend, irecv                                                    uintptr
}

func (f *functions) find(library uintptr) error {
	for _, x := range []struct {
		name string
		at   *uintptr
	}{
		{"MPI_Get_library_version", &f.getLibraryVersion}, {"MPI_Initialized", &f.initialized},
		{"MPI_Init_thread", &f.initThread}, {"MPI_Finalize", &f.finalize}, {"MPI_Error_string", &f.errorString},
		{"MPI_Comm_set_errhandler", &f.commSetErrhandler}, {"MPI_Comm_rank", &f.commRank}, {"MPI_Comm_size", &f.commSize},
		{"MPI_Comm_dup", &f.commDup}, {"MPI_Comm_split", &f.commSplit}, {"MPI_Comm_free", &f.commFree},
		{"MPI_Comm_get_attr", &f.commGetAttr}, {"MPI_Op_create", &f.opCreate}, {"MPI_Test", &f.test}, {"MPI_Cancel", &f.cancel},
		{"MPI_Ibcast", &f.ibcast}, {"MPI_Ireduce", &f.ireduce}, {"MPI_Iallreduce", &f.iallreduce},
		{"MPI_Ireduce_scatter_block", &f.ireduceScatterBlock}, {"MPI_Iallgather", &f.iallgather}, {"MPI_Igather", &f.igather},
		{"MPI_Iscatter", &f.iscatter}, {"MPI_Ialltoall", &f.ialltoall}, {"MPI_Isend", &f.isend}, {"MPI_Irecv", &f.irecv},
	} {
		p, ok := symbol(library, x.name)
		if !ok {
			return fmt.Errorf("it has no %s", x.name)
		}
		*x.at = p
	}
	return nil
}
