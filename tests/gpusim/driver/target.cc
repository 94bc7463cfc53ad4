// The compute capability of this GPU, and the PTX that its driver accepts. It accepts text for the
// same or a lower compute capability, and targets such as sm_90a for exactly that capability (PTX
// ISA, ".target"), in a version that the driver supports (".version").
#include <cstdlib>
#include <regex>

#include "sim.h"

namespace gpusim {

int capability() {
  static const int ten_times = [] {
    const char *v = getenv("GPUSIM_CAPABILITY");
    return v && *v ? int(strtod(v, nullptr) * 10 + 0.5) : 90;
  }();
  return ten_times;
}

Result takes(const std::string &ptx, std::string *why) {
  std::smatch version, target;
  if (!std::regex_search(ptx, version, std::regex(R"(\.version\s+(\d+\.\d+))"))) {
    *why = "no .version: this is not PTX";
    return InvalidPtx;
  }
  if (ptx_is_new(strtod(version[1].str().c_str(), nullptr))) {
    *why = "PTX of version " + version[1].str() + " is newer than this driver";
    return UnsupportedPtxVersion;
  }
  if (!std::regex_search(ptx, target, std::regex(R"(\.target\s+sm_(\d+)(a?))"))) {
    *why = "no .target";
    return InvalidPtx;
  }
  int wants = std::stoi(target[1]);
  if (target[2].length() ? capability() != wants : capability() < wants) {
    *why = "sm_" + target[1].str() + target[2].str() + " is not for this GPU";
    return NoBinaryForGpu;
  }
  return Success;
}

}  // namespace gpusim
