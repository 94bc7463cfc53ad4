// An MPI program for MPICH. It needs no development files, because it declares the prototypes and
// the handles of the ABI.
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { COMM_WORLD = 0x44000000, INT = 0x4c000405, SUM = 0x58000003 };
int MPI_Init(int *, char ***);
int MPI_Comm_rank(int, int *);
int MPI_Comm_size(int, int *);
int MPI_Allreduce(const void *, void *, int, int, int, int);
int MPI_Finalize(void);

// MPICH 4.0 with UCX 1.13 sometimes hangs in MPI_Finalize: a rank waits until its connections are
// closed, while other ranks have closed theirs and wait at Slurm's barrier. All output has been
// written by then.
static void leave(int signal) { _exit(0); }

int main(int argc, char **argv) {
	int rank, size, sum;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(COMM_WORLD, &rank);
	MPI_Comm_size(COMM_WORLD, &size);
	int mine = rank + 1;
	MPI_Allreduce(&mine, &sum, 1, INT, SUM, COMM_WORLD);
	printf("rank %d of %d: the sum is %d\n", rank, size, sum);
	fflush(stdout);
	signal(SIGALRM, leave);
	alarm(5);
	return MPI_Finalize();
}
