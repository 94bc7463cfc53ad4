// Collective operations over a Fabric, as host functions of a stream.
#pragma once

#include <vector>

#include "fabric.h"
#include "nccl.h"

namespace sim {

enum Kind { all_reduce, reduce_scatter, reduce_to, broadcast, all_gather, send, recv };

struct Operation {
	Kind kind;
	const unsigned char *from;
	unsigned char *to;
	size_t count;
	ncclDataType_t type;
	ncclRedOp_t op;
	int root; // for messages, the other rank
};

// perform runs an operation of all ranks. It returns false if it was stopped. Ranks that pass
// different arguments wait forever, as they may with NCCL.
bool perform(Fabric &f, const Operation &o, const std::atomic<bool> &stop);

// exchange runs the messages of a group concurrently.
bool exchange(Fabric &f, const std::vector<Operation> &messages, const std::atomic<bool> &stop);

} // namespace sim
