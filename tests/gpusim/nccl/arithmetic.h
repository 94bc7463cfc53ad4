// Reductions as in NCCL: 16-bit values are computed in float and rounded after each step. The
// average of floating-point values scales each element before the sum; the average of integers
// divides the sum.
#pragma once

#include <cstdint>
#include <cstring>

#include "nccl.h"

namespace sim {

inline size_t size_of(ncclDataType_t t) {
	static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
	return sizes[t];
}

inline uint32_t bits_of(float f) {
	uint32_t u;
	std::memcpy(&u, &f, 4);
	return u;
}

inline float float_of(uint32_t u) {
	float f;
	std::memcpy(&f, &u, 4);
	return f;
}

struct bf16 {
	uint16_t bits;
	explicit operator float() const { return float_of(uint32_t(bits) << 16); }
	static bf16 from(float f) {
		uint32_t u = bits_of(f);
		if ((u & 0x7fffffff) > 0x7f800000) return {uint16_t(u >> 16 | 0x40)};
		return {uint16_t((u + 0x7fff + (u >> 16 & 1)) >> 16)};
	}
};

struct f16 {
	uint16_t bits;
	explicit operator float() const {
		_Float16 h;
		std::memcpy(&h, &bits, 2);
		return float(h);
	}
	static f16 from(float f) {
		_Float16 h = _Float16(f);
		f16 out;
		std::memcpy(&out.bits, &h, 2);
		return out;
	}
};

template <class T> struct number {
	using wide = T;
	static wide read(T v) { return v; }
	static T write(wide v) { return v; }
};
template <> struct number<bf16> {
	using wide = float;
	static float read(bf16 v) { return float(v); }
	static bf16 write(float v) { return bf16::from(v); }
};
template <> struct number<f16> {
	using wide = float;
	static float read(f16 v) { return float(v); }
	static f16 write(float v) { return f16::from(v); }
};

// combine computes into = into op next, for each element.
template <class T> void combine(T *into, const T *next, size_t n, ncclRedOp_t op) {
	using N = number<T>;
	for (size_t i = 0; i < n; i++) {
		auto a = N::read(into[i]), b = N::read(next[i]);
		switch (op) {
		case ncclProd: a = a * b; break;
		case ncclMax: a = a > b ? a : b; break;
		case ncclMin: a = a < b ? a : b; break;
		default: a = a + b;
		}
		into[i] = N::write(a);
	}
}

template <class T> constexpr bool is_float = false;
template <> inline constexpr bool is_float<float> = true;
template <> inline constexpr bool is_float<double> = true;
template <> inline constexpr bool is_float<bf16> = true;
template <> inline constexpr bool is_float<f16> = true;

// reduce computes the reduction of all ranks' elements into out; part(r) returns rank r's elements.
template <class T, class Part> void reduce(T *out, size_t n, int ranks, ncclRedOp_t op, Part part) {
	using N = number<T>;
	T scaled[256];
	for (size_t at = 0; at < n; at += 256) {
		size_t m = n - at < 256 ? n - at : 256;
		for (int r = 0; r < ranks; r++) {
			const T *v = reinterpret_cast<const T *>(part(r)) + at;
			if constexpr (is_float<T>) {
				if (op == ncclAvg) {
					auto by = N::read(N::write(typename N::wide(1) / typename N::wide(ranks)));
					for (size_t i = 0; i < m; i++) scaled[i] = N::write(N::read(v[i]) * by);
					v = scaled;
				}
			}
			if (r == 0)
				std::memmove(out + at, v, m * sizeof(T));
			else
				combine(out + at, v, m, op);
		}
		if constexpr (!is_float<T>)
			if (op == ncclAvg)
				for (size_t i = 0; i < m; i++) out[at + i] = T(out[at + i] / T(ranks));
	}
}

template <class Part> void reduce(void *out, size_t n, ncclDataType_t t, int ranks, ncclRedOp_t op, Part part) {
	switch (t) {
	case ncclInt8: return reduce(static_cast<int8_t *>(out), n, ranks, op, part);
	case ncclUint8: return reduce(static_cast<uint8_t *>(out), n, ranks, op, part);
	case ncclInt32: return reduce(static_cast<int32_t *>(out), n, ranks, op, part);
	case ncclUint32: return reduce(static_cast<uint32_t *>(out), n, ranks, op, part);
	case ncclInt64: return reduce(static_cast<int64_t *>(out), n, ranks, op, part);
	case ncclUint64: return reduce(static_cast<uint64_t *>(out), n, ranks, op, part);
	case ncclFloat16: return reduce(static_cast<f16 *>(out), n, ranks, op, part);
	case ncclFloat32: return reduce(static_cast<float *>(out), n, ranks, op, part);
	case ncclFloat64: return reduce(static_cast<double *>(out), n, ranks, op, part);
	case ncclBfloat16: return reduce(static_cast<bf16 *>(out), n, ranks, op, part);
	}
}

} // namespace sim
