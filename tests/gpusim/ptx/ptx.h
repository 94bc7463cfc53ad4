// An interpreter of PTX, for the instructions that clang emits for the trainer's kernels and for
// those in their inline assembly. It follows the PTX ISA 8.0. An instruction that it cannot execute
// is an error when the module is loaded.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace gpusim::ptx {

typedef uint64_t u64;
typedef int64_t i64;
typedef uint32_t u32;
typedef uint16_t u16;

enum class Type : uint8_t { none, pred, b8, b16, b32, b64, u8, u16, u32, u64, s8, s16, s32, s64, f32, f64 };
unsigned size_of(Type t);  // bytes
bool is_float(Type t);
bool is_signed(Type t);

enum class Op : uint8_t {
  mov, pack, unpack, add, sub, mul, mul_wide, mad, fma, div, rem, min, max, neg, and_, or_, xor_, not_, shl, shr, bfe, selp, setp, cvt, bf16, bf16x2, rint,
  ex2, sqrt, rcp, ld, st, copy, copy_commit, copy_wait, shfl, ldmatrix, mma, wgmma, wgmma_group, fence, bar, bra, ret
};
enum class Space : uint8_t { none, param, global, shared };
enum class Compare : uint8_t { none, eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, nan };

// Instruction is a decoded instruction. All operands are registers: immediate values, special
// registers, and addresses of variables are in registers that are set before a block starts.
struct Instruction {
  Op op;
  Type type = Type::none, from = Type::none;  // from: source type of cvt
  Space space = Space::none;
  Compare compare = Compare::none;
  bool negated = false;    // the predicate
  bool transposed = false; // ldmatrix.trans, or wgmma with an MN-major right matrix
  bool from_registers = false;  // wgmma: the left matrix
  unsigned vector = 1;     // elements of ld and st; columns of wgmma; bytes of cp.async; groups that may remain after its wait
  int predicate = -1;      // register
  int target = -1;         // of bra
  i64 offset = 0;          // of an address
  i64 source_offset = 0;   // of the global address of cp.async
  std::vector<int> to, in; // registers
  unsigned line = 0;       // in the text
};

// wait_all is Instruction.vector of cp.async.wait_all, which also waits for copies of no group.
constexpr unsigned wait_all = ~0u;

struct Preset {  // a register with a constant value
  int reg;
  u64 value;
};

struct Kernel {
  std::string name;
  std::vector<Instruction> code;
  std::vector<std::string> text;  // of each instruction, for messages
  int registers = 0;
  std::vector<Preset> presets;
  int tid = -1, ntid = -1, ctaid[3] = {-1, -1, -1}, nctaid[3] = {-1, -1, -1};  // special registers that are used
  std::vector<size_t> offsets, sizes;  // of the parameters
  size_t param_bytes = 0;
  std::vector<std::string> names;  // of the registers
  u32 static_end = 0;  // address behind the shared variables
  u32 dynamic = 0;     // address of dynamic shared memory
};

struct Module {
  std::map<std::string, std::unique_ptr<Kernel>> kernels;
};

// Memory is memory that a kernel may access. Each of its bytes has a byte in written.
struct Memory {
  uintptr_t address;
  size_t bytes;
  unsigned char *written;
};
enum Written : unsigned char {
  not_written,     // by a kernel or a copy
  is_written,
  copied_nothing,  // written with bytes that nothing has written
};

// Results of a run, as in CUresult. A GPU would not report what ends with LaunchFailed here, such as
// a race.
enum Result : int { Success = 0, IllegalAddress = 700, LaunchTimeout = 702, MisalignedAddress = 716, LaunchFailed = 719, Unsupported = 801 };

// Fault is an error that ends a kernel.
struct Fault {
  Result result;
  std::string message;
};

// check throws a Fault if the interpreter has no operation for an instruction of a kernel.
void check(const Kernel &k);

// parse returns a module, or nullptr and the reason.
std::unique_ptr<Module> parse(const std::string &text, std::string *why);

// Limits of a GPU: bytes of shared memory and of parameters.
constexpr u32 most_shared = 232448, most_params = 4096;

// The first address of shared memory. Dynamic shared memory is aligned to 16 bytes, but not to 32.
constexpr u32 shared_begin = 1024;

}  // namespace gpusim::ptx
