// A software libnccl.so.2: the functions that ddpbatch calls, over shared memory, on
// the streams of a simulated libcuda.so.1, whose device memory the host can address.
//
// It enforces NCCL's rules whose violation would show only on a GPU: a context must be current, a
// busy communicator accepts no calls, ranks that pass different arguments wait forever, and an abort
// on one rank does not release the others.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "fabric.h"
#include "failures.h"
#include "nccl.h"
#include "operations.h"

#ifndef SIM_NCCL_VERSION
#define SIM_NCCL_VERSION 23007
#endif

#define API extern "C" __attribute__((visibility("default")))

using sim::Operation;

namespace {

// Cuda holds the functions of libcuda.so.1, which the program has loaded.
struct Cuda {
	int (*ctxGetCurrent)(void **) = nullptr;
	int (*launchHostFunc)(void *, void (*)(void *), void *) = nullptr;
	Cuda() {
		void *h = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
		if (!h) h = dlopen("libcuda.so.1", RTLD_NOW);
		if (!h) return;
		ctxGetCurrent = reinterpret_cast<decltype(ctxGetCurrent)>(dlsym(h, "cuCtxGetCurrent"));
		launchHostFunc = reinterpret_cast<decltype(launchHostFunc)>(dlsym(h, "cuLaunchHostFunc"));
	}
	bool current() const {
		void *c = nullptr;
		return ctxGetCurrent && launchHostFunc && ctxGetCurrent(&c) == 0 && c;
	}
};

const Cuda &cuda() {
	static const Cuda c;
	return c;
}

// State is a communicator. Jobs on streams keep it alive after its end.
struct State {
	sim::Fabric fabric;
	int rank = 0, size = 0;
	bool blocking = true;
	std::atomic<bool> stop = false;
	std::atomic<int> result = ncclInProgress; // for ncclGetAsyncError
	std::atomic<int> polls = 0;               // during which it is still busy
	std::atomic<int> pending = 0, running = 0;
	int operations = 0;
	std::vector<sim::Failure> failures;

	const sim::Failure *failing(const char *kind, int number) const {
		if (size > 1)
			for (const auto &f : failures)
				if (f.kind == kind && f.rank == rank && f.number == number) return &f;
		return nullptr;
	}
};

std::mutex last_mutex;
char last_error[512];

ncclResult_t fail(ncclResult_t r, const std::string &text) {
	std::lock_guard lock(last_mutex);
	snprintf(last_error, sizeof last_error, "%s", text.c_str());
	return r;
}

} // namespace

struct ncclComm {
	std::shared_ptr<State> state = std::make_shared<State>();
	std::thread thread; // of an initialization, a split, or an end
	void join() {
		if (thread.joinable()) thread.join();
	}
};

namespace {

// begin runs work in the background while the caller polls the communicator's result, or
// immediately if calls block.
template <class Work> [[maybe_unused]] ncclResult_t begin(ncclComm_t c, Work work) {
	c->join();
	c->state->result = ncclInProgress;
	auto all = [s = c->state, work] { s->result = work(); };
	if (c->state->blocking) {
		all();
		return ncclResult_t(c->state->result.load());
	}
	c->thread = std::thread(all);
	return ncclInProgress;
}

ncclResult_t usable(ncclComm_t c, const char *call) {
	if (!c) return fail(ncclInvalidArgument, std::string(call) + " : comm argument is NULL");
	int r = c->state->result;
	if (r == ncclInProgress || c->state->polls > 0)
		return fail(ncclInvalidArgument, "Attempt to use communicator before the previous operation returned ncclSuccess");
	if (r != ncclSuccess) return ncclResult_t(r);
	if (!cuda().current()) return fail(ncclUnhandledCudaError, "Cuda failure 201 'invalid device context'");
	return ncclSuccess;
}

[[maybe_unused]] ncclResult_t read_config(State &s, const ncclConfig_t *config) {
	s.failures = sim::failures();
	if (!config) return ncclSuccess;
	if (config->magic != NCCL_CONFIG_MAGIC) return fail(ncclInvalidArgument, "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
	if (config->version < 21400 || config->size < 24) return fail(ncclInvalidArgument, "ncclConfig_t has an unknown version");
	if (config->blocking != NCCL_CONFIG_UNDEF_INT && config->blocking != 0 && config->blocking != 1)
		return fail(ncclInvalidArgument, "Invalid config blocking attribute value");
	s.blocking = config->blocking != 0;
	return ncclSuccess;
}

struct Job {
	std::shared_ptr<State> state;
	std::vector<Operation> operations;
	int number;
};

void run(void *argument) {
	std::unique_ptr<Job> job(static_cast<Job *>(argument));
	State &s = *job->state;
	s.running++;
	auto for_ever = [&] { sim::until(s.stop, [] { return false; }); };
	if (auto f = s.failing("async", job->number)) {
		const char *on = getenv("NCCL_SOCKET_IFNAME"); // as NCCL reads it, from C's environment
		fail(ncclResult_t(f->result), std::string("NET/Simulator : connection to a peer was closed on ") + (on ? on : "any interface"));
		s.result = f->result;
		for_ever();
	} else if (s.failing("hang", job->number)) {
		for_ever();
	} else if (!s.stop) {
		if (job->operations[0].kind >= sim::send)
			sim::exchange(s.fabric, job->operations, s.stop);
		else
			sim::perform(s.fabric, job->operations[0], s.stop);
	}
	s.running--;
	s.pending--;
}

struct Call {
	ncclComm_t comm;
	cudaStream_t stream;
	Operation operation;
};

thread_local int depth;
thread_local std::vector<Call> group;

ncclResult_t launch(ncclComm_t c, cudaStream_t stream, std::vector<Operation> operations) {
	State &s = *c->state;
	int number = s.operations++;
	if (auto f = s.failing("refuse", number)) return fail(ncclResult_t(f->result), "refused by the simulator");
	s.pending++;
	auto job = std::make_unique<Job>(Job{c->state, std::move(operations), number});
	if (cuda().launchHostFunc(stream, run, job.get()) != 0) {
		s.pending--;
		return fail(ncclUnhandledCudaError, "Cuda failure 'launch failed'");
	}
	job.release();
	s.polls = s.blocking ? 0 : 1;
	return s.blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t enqueue(const char *name, ncclComm_t c, cudaStream_t stream, Operation o) {
	if (ncclResult_t r = usable(c, name); r != ncclSuccess) return r;
	bool rooted = o.kind == sim::reduce_to || o.kind == sim::broadcast || o.kind >= sim::send;
	if (o.type < 0 || o.type > ncclBfloat16 || o.op < 0 || o.op > ncclAvg || (rooted && (o.root < 0 || o.root >= c->state->size)))
		return fail(ncclInvalidArgument, std::string(name) + " : invalid argument");
	if (depth > 0) {
		group.push_back({c, stream, o});
		return ncclSuccess;
	}
	return launch(c, stream, {o});
}

} // namespace

API ncclResult_t ncclGetVersion(int *version) {
	*version = SIM_NCCL_VERSION;
	return ncclSuccess;
}

API const char *ncclGetLastError(ncclComm_t) { return last_error; }

API ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
	std::string name = sim::Fabric::make();
	if (name.empty()) return fail(ncclSystemError, "Bootstrap : no shared memory");
	memset(id, 0, sizeof *id);
	memcpy(id->internal, name.data(), name.size());
	return ncclSuccess;
}

#if SIM_NCCL_VERSION >= 21403
API ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank, ncclConfig_t *config) {
	if (size < 1 || size > sim::max_ranks || rank < 0 || rank >= size) return fail(ncclInvalidArgument, "Invalid rank requested");
	if (!cuda().current()) return fail(ncclUnhandledCudaError, "Cuda failure 201 'invalid device context'");
	auto c = std::make_unique<ncclComm>();
	c->state->rank = rank, c->state->size = size;
	if (ncclResult_t r = read_config(*c->state, config); r != ncclSuccess) return r;
	*out = c.release();
	std::string name(id.internal, strnlen(id.internal, sizeof id.internal));
	return begin(*out, [s = (*out)->state, name] {
		if (s->failing("init", 0)) sim::until(s->stop, [] { return false; });
		std::string why = s->fabric.open(name, s->rank, s->size, s->stop);
		return why.empty() ? ncclSuccess : fail(ncclSystemError, why);
	});
}
#endif

#if SIM_NCCL_VERSION >= 21801
API ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *out, ncclConfig_t *config) {
	if (ncclResult_t r = usable(c, "CommSplit"); r != ncclSuccess) return r;
	auto part = std::make_shared<State>();
	if (ncclResult_t r = read_config(*part, config); r != ncclSuccess) return r;
	*out = nullptr;
	return begin(c, [s = c->state, part, color, key, out]() -> ncclResult_t {
		auto &f = s->fabric;
		auto &m = *f.shared;
		m.colors[s->rank] = color, m.keys[s->rank] = key;
		if (!sim::until(s->stop, [&] { return s->pending == 0; }) || !f.barrier(s->stop)) return ncclInternalError;
		std::vector<int> members;
		for (int r = 0; r < s->size; r++)
			if (m.colors[r] == color) members.push_back(r);
		std::sort(members.begin(), members.end(), [&](int a, int b) { return std::pair(m.keys[a], a) < std::pair(m.keys[b], b); });
		bool in = color != NCCL_SPLIT_NOCOLOR;
		if (in && members[0] == s->rank) snprintf(m.names[s->rank], sizeof m.names[0], "%s", sim::Fabric::make().c_str());
		if (!f.barrier(s->stop)) return ncclInternalError;
		std::string name = m.names[members[0]];
		if (!f.barrier(s->stop)) return ncclInternalError;
		if (!in) return ncclSuccess;
		part->size = int(members.size());
		part->rank = int(std::find(members.begin(), members.end(), s->rank) - members.begin());
		std::string why = part->fabric.open(name, part->rank, part->size, s->stop);
		if (!why.empty()) return fail(ncclSystemError, why);
		part->result = ncclSuccess;
		auto made = std::make_unique<ncclComm>();
		made->state = part;
		*out = made.release();
		return ncclSuccess;
	});
}
#endif

API ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state) {
	if (!c) return fail(ncclInvalidArgument, "CommGetAsyncError : comm argument is NULL");
	*state = ncclResult_t(c->state->result.load());
	if (*state == ncclSuccess && c->state->polls > 0) {
		c->state->polls--;
		*state = ncclInProgress;
	}
	return ncclSuccess;
}

API ncclResult_t ncclCommFinalize(ncclComm_t c) {
	if (ncclResult_t r = usable(c, "CommFinalize"); r != ncclSuccess) return r;
	return begin(c, [s = c->state] {
		sim::until(s->stop, [&] { return s->pending == 0; });
		return ncclSuccess;
	});
}

API ncclResult_t ncclCommDestroy(ncclComm_t c) {
	c->join();
	sim::until(c->state->stop, [&] { return c->state->pending == 0; });
	delete c;
	return ncclSuccess;
}

API ncclResult_t ncclCommAbort(ncclComm_t c) {
	c->state->stop = true;
	c->join();
	for (int tries = 0; c->state->running > 0; tries++) sim::pause_for(tries);
	delete c;
	return ncclSuccess;
}

API ncclResult_t ncclGroupStart() {
	depth++;
	return ncclSuccess;
}

// The messages of a communicator form one job, so that none waits for another.
API ncclResult_t ncclGroupEnd() {
	if (depth == 0) return fail(ncclInvalidUsage, "ncclGroupEnd: not in a group call");
	if (--depth > 0) return ncclSuccess;
	std::vector<Call> calls;
	calls.swap(group);
	ncclResult_t result = ncclSuccess;
	auto note = [&](ncclResult_t r) {
		if (result == ncclSuccess || result == ncclInProgress) result = r == ncclSuccess ? result : r;
	};
	while (!calls.empty()) {
		Call first = calls[0];
		std::vector<Operation> together;
		std::vector<Call> rest;
		for (size_t i = 0; i < calls.size(); i++) {
			bool with = i == 0 || (first.operation.kind >= sim::send && calls[i].operation.kind >= sim::send && calls[i].comm == first.comm);
			if (with)
				together.push_back(calls[i].operation);
			else
				rest.push_back(calls[i]);
		}
		note(launch(first.comm, first.stream, together));
		calls.swap(rest);
	}
	return result;
}

namespace {

const unsigned char *in(const void *p) { return static_cast<const unsigned char *>(p); }
unsigned char *out(void *p) { return static_cast<unsigned char *>(p); }

} // namespace

API ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c, cudaStream_t s) {
	return enqueue("AllReduce", c, s, {sim::all_reduce, in(send), out(recv), count, t, op, 0});
}

API ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c, cudaStream_t s) {
	return enqueue("ReduceScatter", c, s, {sim::reduce_scatter, in(send), out(recv), count, t, op, 0});
}

API ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t t, ncclRedOp_t op, int root, ncclComm_t c, cudaStream_t s) {
	return enqueue("Reduce", c, s, {sim::reduce_to, in(send), out(recv), count, t, op, root});
}

API ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t t, int root, ncclComm_t c, cudaStream_t s) {
	return enqueue("Broadcast", c, s, {sim::broadcast, in(send), out(recv), count, t, ncclSum, root});
}

API ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t t, ncclComm_t c, cudaStream_t s) {
	return enqueue("AllGather", c, s, {sim::all_gather, in(send), out(recv), count, t, ncclSum, 0});
}

API ncclResult_t ncclSend(const void *buf, size_t count, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s) {
	return enqueue("Send", c, s, {sim::send, in(buf), nullptr, count, t, ncclSum, peer});
}

API ncclResult_t ncclRecv(void *buf, size_t count, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s) {
	return enqueue("Recv", c, s, {sim::recv, nullptr, out(buf), count, t, ncclSum, peer});
}
