// The simulated fabric: shared memory that all ranks of a communicator map, in one process, in
// several processes, or on nodes that are namespaces of one machine. The unique ID contains its
// name.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace sim {

constexpr int max_ranks = 16;
constexpr size_t slot_bytes = 64 << 10;

// Ticket describes the operation that a rank is in.
struct Ticket {
	int kind, type, op, root;
	size_t count;
	bool operator==(const Ticket &o) const {
		return kind == o.kind && type == o.type && op == o.op && root == o.root && count == o.count;
	}
};

// Mailbox holds one piece of a message between two ranks at a time.
struct Mailbox {
	std::atomic<uint64_t> written, read; // pieces
	unsigned char data[slot_bytes];
};

struct Shared {
	std::atomic<int> arrived, size, left;
	std::atomic<uint64_t> entered; // of the barrier
	Ticket tickets[max_ranks];
	int colors[max_ranks], keys[max_ranks];
	char names[max_ranks][64]; // fabrics of a split, indexed by lowest rank
	unsigned char slots[max_ranks][slot_bytes];
	Mailbox boxes[max_ranks][max_ranks]; // from, to
};

// Fabric is one rank's view of the fabric. Waiting returns false when stop becomes true.
class Fabric {
public:
	~Fabric();
	// make creates the memory and returns its name, which open removes.
	static std::string make();
	// open maps the memory and waits for all ranks. An empty string means success.
	std::string open(const std::string &name, int rank, int size, const std::atomic<bool> &stop);
	bool barrier(const std::atomic<bool> &stop);
	Shared *shared = nullptr;
	int rank = 0, size = 0;

private:
	uint64_t rounds = 0;
};

void pause_for(int tries);

// until waits for a condition without holding the CPU.
template <class Condition> bool until(const std::atomic<bool> &stop, Condition condition) {
	for (int tries = 0; !condition(); tries++) {
		if (stop.load()) return false;
		pause_for(tries);
	}
	return true;
}

} // namespace sim
