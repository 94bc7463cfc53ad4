#include "fabric.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

namespace sim {

namespace {

std::string failure(const char *what, const std::string &name) {
	return std::string(what) + " " + name + ": " + strerror(errno);
}

// folder returns the directory for the files of a fabric's memory: POSIX shared memory, as in
// glibc, or a directory that "nodes" on one machine share if each has its own /dev/shm.
std::string folder() {
	const char *f = getenv("GPUSIM_FABRIC");
	return f && *f ? f : "/dev/shm";
}

} // namespace

void pause_for(int tries) {
	if (tries < 50) {
		sched_yield();
		return;
	}
	timespec t = {0, tries < 500 ? 20'000 : 500'000};
	nanosleep(&t, nullptr);
}

std::string Fabric::make() {
	uint64_t r[2];
	if (getrandom(r, sizeof r, 0) != sizeof r) return "";
	char name[64];
	snprintf(name, sizeof name, "/gpusim-nccl-%016llx%016llx", (unsigned long long)r[0], (unsigned long long)r[1]);
	std::string file = folder() + name;
	int fd = ::open(file.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0) return "";
	bool ok = ftruncate(fd, sizeof(Shared)) == 0;
	close(fd);
	if (!ok) {
		unlink(file.c_str());
		return "";
	}
	return name;
}

std::string Fabric::open(const std::string &name, int r, int n, const std::atomic<bool> &stop) {
	std::string file = folder() + name;
	int fd = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
	if (fd < 0) return failure("Bootstrap : cannot open", file);
	void *m = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (m == MAP_FAILED) return failure("Bootstrap : cannot map", file);
	shared = static_cast<Shared *>(m);
	rank = r, size = n;
	int expected = 0;
	if (!shared->size.compare_exchange_strong(expected, n) && expected != n)
		return "Bootstrap : ranks disagree on their number";
	shared->arrived++;
	bool all = until(stop, [&] { return shared->arrived.load() >= n; });
	unlink(file.c_str()); // a later process finds nothing, which is also correct
	return all ? "" : "Bootstrap : aborted";
}

Fabric::~Fabric() {
	if (shared) munmap(shared, sizeof(Shared));
}

bool Fabric::barrier(const std::atomic<bool> &stop) {
	rounds++;
	shared->entered++;
	return until(stop, [&] { return shared->entered.load() >= rounds * uint64_t(size); });
}

} // namespace sim
