/* Times sums of float32 by an MPI library's own MPI_Allreduce, blocking and in place, as
 * one of the processes that its mpirun starts.
 *
 * usage: allreduce LIBRARY BYTES...
 *
 * Rank 0 prints a line of JSON for each size, with the names of "ddpbatch bench
 * allreduce". The library is loaded by name, so that neither mpi.h is needed nor a
 * program for each: Open MPI's handles are addresses that it exports, MPICH's are numbers
 * that its mpi.h fixes. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { settle = 250 /* ms */, work = 400 << 20, most = 2000, least = 8 }; /* as ours */

static void *library;

static void *find(const char *name) {
	void *p = dlsym(library, name);
	if (p == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	return p;
}

static int ascending(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

int main(int argc, char **argv) {
	if (argc < 3 || (library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL)) == NULL) {
		fprintf(stderr, "%s\n", argc < 3 ? "usage: allreduce LIBRARY BYTES..." : dlerror());
		return 1;
	}
	/* MPICH's handles are ints: the ABI leaves the upper half of an argument alone. */
	uintptr_t world = 0x44000000, single = 0x4c00040a, sum = 0x58000003, in_place = (uintptr_t)-1;
	if (dlsym(library, "ompi_mpi_comm_world") != NULL) {
		world = (uintptr_t)find("ompi_mpi_comm_world");
		single = (uintptr_t)find("ompi_mpi_float");
		sum = (uintptr_t)find("ompi_mpi_op_sum");
		in_place = 1;
	}
	int (*init)(int *, char ***) = find("MPI_Init");
	int (*comm_rank)(uintptr_t, int *) = find("MPI_Comm_rank"), (*comm_size)(uintptr_t, int *) = find("MPI_Comm_size");
	int (*allreduce)(uintptr_t, void *, int, uintptr_t, uintptr_t, uintptr_t) = find("MPI_Allreduce");
	int (*finalize)(void) = find("MPI_Finalize");
	int rank, size, failed = init(&argc, &argv) || comm_rank(world, &rank) || comm_size(world, &size);
	for (int i = 2; i < argc && !failed; i++) {
		long bytes = atol(argv[i]), count = work / bytes;
		count = count < least ? least : count > most ? most : count;
		double *times = calloc(count, sizeof *times);
		void *values = NULL;
		if (times == NULL || posix_memalign(&values, 4096, bytes) != 0)
			return 1;
		memset(values, 0, bytes);
		double began = now();
		float spent = 0; /* of all ranks: they decide alike */
		for (long done = 0; spent < settle * size && !failed;) {
			for (long more = done > 0 ? done : 1; more > 0 && !failed; more--, done++)
				failed = allreduce(in_place, values, bytes / 4, single, sum, world);
			spent = now() - began;
			failed = failed || allreduce(in_place, &spent, 1, single, sum, world);
		}
		for (long run = 0; run < count && !failed; run++) {
			double start = now();
			failed = allreduce(in_place, values, bytes / 4, single, sum, world);
			times[run] = now() - start;
		}
		qsort(times, count, sizeof *times, ascending);
		if (rank == 0)
			printf("{\"bench\":\"allreduce\",\"ranks\":%d,\"bytes\":%ld,\"runs\":%ld,\"median_ms\":%.6f,\"best_ms\":%.6f,\"transport\":\"mpi\"}\n",
			       size, bytes, count, times[count / 2], times[0]);
		free(times);
		free(values);
	}
	return failed || finalize();
}
