// Injected failures. GPUSIM_NCCL is a comma-separated list of KIND:RANK:NUMBER[:RESULT]. They affect
// rank RANK of every communicator of more than one rank that is created while the variable is set.
//
//	init:1        rank 1 never arrives, so no rank's initialization ends
//	hang:1:3      operation 3 (from 0) of rank 1 never starts
//	async:1:3:6   operation 3 never starts, and rank 1's communicator has result 6
//	refuse:1:3:4  the call of operation 3 returns result 4
#pragma once

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

namespace sim {

struct Failure {
	std::string kind;
	int rank = 0, number = 0, result = 0;
};

inline std::vector<Failure> failures() {
	std::vector<Failure> all;
	const char *text = getenv("GPUSIM_NCCL");
	std::stringstream list(text ? text : "");
	for (std::string one; std::getline(list, one, ',');) {
		Failure f;
		char kind[16] = "";
		if (sscanf(one.c_str(), "%15[a-z]:%d:%d:%d", kind, &f.rank, &f.number, &f.result) < 2) {
			fprintf(stderr, "libnccl simulator: GPUSIM_NCCL: \"%s\" is no failure\n", one.c_str());
			abort();
		}
		f.kind = kind;
		all.push_back(f);
	}
	return all;
}

} // namespace sim
