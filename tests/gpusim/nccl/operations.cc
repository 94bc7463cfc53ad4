#include "operations.h"

#include <algorithm>
#include <cstring>

#include "arithmetic.h"

namespace sim {

namespace {

// Pieces makes every rank publish its data piece by piece, and each rank read the data it needs.
class Pieces {
public:
	Pieces(Fabric &f, const std::atomic<bool> &stop) : f(f), stop(stop) {}
	// each calls put(slot, at, bytes) and then take(at, bytes) for bytes in pieces.
	template <class Put, class Take> bool each(size_t bytes, Put put, Take take) {
		for (size_t at = 0; at < bytes; at += slot_bytes) {
			size_t n = std::min(slot_bytes, bytes - at);
			put(f.shared->slots[f.rank], at, n);
			if (!f.barrier(stop)) return false;
			take(at, n);
			if (!f.barrier(stop)) return false;
		}
		return true;
	}

private:
	Fabric &f;
	const std::atomic<bool> &stop;
};

bool agreed(Fabric &f, const Operation &o, const std::atomic<bool> &stop) {
	Ticket mine = {o.kind, o.type, o.op, o.root, o.count};
	f.shared->tickets[f.rank] = mine;
	if (!f.barrier(stop)) return false;
	bool same = std::all_of(f.shared->tickets, f.shared->tickets + f.size, [&](const Ticket &t) { return t == mine; });
	if (!same) return until(stop, [] { return false; });
	return f.barrier(stop);
}

} // namespace

bool perform(Fabric &f, const Operation &o, const std::atomic<bool> &stop) {
	if (!agreed(f, o, stop)) return false;
	size_t width = size_of(o.type), bytes = o.count * width;
	auto slot = [&](int r) { return f.shared->slots[r]; };
	Pieces pieces(f, stop);
	auto publish = [&](const unsigned char *from) {
		return [=](unsigned char *slot, size_t at, size_t n) { std::memcpy(slot, from + at, n); };
	};
	auto combined = [&](size_t at, size_t n) { reduce(o.to + at, n / width, o.type, f.size, o.op, slot); };
	auto nothing = [](auto...) {};
	switch (o.kind) {
	case all_reduce:
		return pieces.each(bytes, publish(o.from), combined);
	case reduce_to:
		if (f.rank == o.root) return pieces.each(bytes, publish(o.from), combined);
		return pieces.each(bytes, publish(o.from), nothing);
	case reduce_scatter:
		for (int r = 0; r < f.size; r++) {
			bool ok = r == f.rank ? pieces.each(bytes, publish(o.from + r * bytes), combined)
			                      : pieces.each(bytes, publish(o.from + r * bytes), nothing);
			if (!ok) return false;
		}
		return true;
	case broadcast: {
		auto take = [&](size_t at, size_t n) { std::memcpy(o.to + at, slot(o.root), n); };
		if (f.rank == o.root) return pieces.each(bytes, publish(o.from), take);
		return pieces.each(bytes, nothing, take);
	}
	case all_gather:
		return pieces.each(bytes, publish(o.from), [&](size_t at, size_t n) {
			for (int r = 0; r < f.size; r++) std::memcpy(o.to + r * bytes + at, slot(r), n);
		});
	default:
		return false;
	}
}

bool exchange(Fabric &f, const std::vector<Operation> &messages, const std::atomic<bool> &stop) {
	std::vector<size_t> done(messages.size());
	auto progress = [&] {
		bool all = true;
		// Messages between two ranks in one direction keep their order.
		std::vector<bool> waits(2 * max_ranks);
		for (size_t i = 0; i < messages.size(); i++) {
			const auto &m = messages[i];
			size_t bytes = m.count * size_of(m.type);
			if (done[i] == bytes) continue;
			all = false;
			size_t direction = (m.kind == send ? 0 : max_ranks) + size_t(m.root);
			if (waits[direction]) continue;
			waits[direction] = true;
			auto &box = m.kind == send ? f.shared->boxes[f.rank][m.root] : f.shared->boxes[m.root][f.rank];
			size_t n = std::min(slot_bytes, bytes - done[i]);
			uint64_t written = box.written.load(), read = box.read.load();
			if (m.kind == send && written == read) {
				std::memcpy(box.data, m.from + done[i], n);
				box.written++;
			} else if (m.kind == recv && written > read) {
				std::memcpy(m.to + done[i], box.data, n);
				box.read++;
			} else {
				continue;
			}
			done[i] += n;
		}
		return all;
	};
	return until(stop, progress);
}

} // namespace sim
