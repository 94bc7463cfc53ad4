// Parsing of PTX text.
#include "ptx.h"

#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace gpusim::ptx {

unsigned size_of(Type t) {
  switch (t) {
  case Type::b8: case Type::u8: case Type::s8: return 1;
  case Type::b16: case Type::u16: case Type::s16: return 2;
  case Type::b32: case Type::u32: case Type::s32: case Type::f32: return 4;
  case Type::b64: case Type::u64: case Type::s64: case Type::f64: return 8;
  default: return 0;
  }
}
bool is_float(Type t) { return t == Type::f32 || t == Type::f64; }
bool is_signed(Type t) { return t == Type::s8 || t == Type::s16 || t == Type::s32 || t == Type::s64; }

namespace {

[[noreturn]] void fail(const std::string &why) { throw std::runtime_error(why); }

Type type_named(const std::string &s) {
  static const std::map<std::string, Type> all = {{"pred", Type::pred}, {"b8", Type::b8}, {"b16", Type::b16}, {"b32", Type::b32}, {"b64", Type::b64}, {"u8", Type::u8},
                                                  {"u16", Type::u16}, {"u32", Type::u32}, {"u64", Type::u64}, {"s8", Type::s8}, {"s16", Type::s16}, {"s32", Type::s32},
                                                  {"s64", Type::s64}, {"f32", Type::f32}, {"f64", Type::f64}};
  auto it = all.find(s);
  if (it == all.end()) fail("unknown type ." + s);
  return it->second;
}

std::string trim(const std::string &s) {
  size_t a = s.find_first_not_of(" \t\r"), b = s.find_last_not_of(" \t\r");
  return a == std::string::npos ? "" : s.substr(a, b - a + 1);
}

bool has_prefix(const std::string &s, const char *p) { return s.compare(0, strlen(p), p) == 0; }

// parse_integer parses a number that is the whole text, in the notation of C.
u64 parse_integer(const std::string &s, int base = 0) {
  size_t digits = s[0] == '-' ? 1 : 0;
  char *end = nullptr;
  u64 v = digits ? u64(strtoll(s.c_str(), &end, base)) : strtoull(s.c_str(), &end, base);
  if (digits == s.size() || !isxdigit(static_cast<unsigned char>(s[digits])) || *end) fail("expected a number, not " + s);
  return v;
}

// split splits operands at commas outside of braces and brackets.
std::vector<std::string> split(const std::string &s, char at = ',') {
  std::vector<std::string> out;
  int depth = 0;
  std::string one;
  for (char c : s) {
    if (c == '{' || c == '[') depth++;
    if (c == '}' || c == ']') depth--;
    if (c == at && !depth) {
      out.push_back(trim(one));
      one.clear();
    } else {
      one += c;
    }
  }
  if (!trim(one).empty()) out.push_back(trim(one));
  return out;
}

struct Shared { u32 align, bytes; };

struct Parser {
  Kernel *k;
  std::map<std::string, int> regs;             // by name
  std::map<u64, int> constants;
  std::map<std::string, u64> symbols;          // parameters and shared variables
  std::map<std::string, int> labels;           // index of the instruction
  std::vector<std::pair<size_t, std::string>> branches;

  int constant(u64 v) {
    auto it = constants.find(v);
    if (it != constants.end()) return it->second;
    int r = k->registers++;
    k->presets.push_back({r, v});
    return constants[v] = r;
  }
  int special(const std::string &s) {
    static const char axes[] = "xyz";
    int *to = nullptr;
    if (s == "%tid.x") to = &k->tid;
    if (s == "%ntid.x") to = &k->ntid;
    for (int i = 0; i < 3; i++) {
      if (s == std::string("%ctaid.") + axes[i]) to = &k->ctaid[i];
      if (s == std::string("%nctaid.") + axes[i]) to = &k->nctaid[i];
    }
    if (!to) return -1;
    if (*to < 0) *to = k->registers++;
    return *to;
  }
  static bool is_number(const std::string &s) { return isdigit(static_cast<unsigned char>(s[0])) || s[0] == '-'; }
  // result returns the register of an operand that an instruction writes.
  int result(const std::string &s) {
    if (is_number(s) || symbols.count(s) || special(s) >= 0) fail("not a register: " + s);
    return reg(s);
  }
  // reg returns the register of an operand.
  int reg(const std::string &s, Type t = Type::none) {
    if (s.empty()) fail("an empty operand");
    if (has_prefix(s, "0f") || has_prefix(s, "0d")) {
      if (s.size() != (s[1] == 'f' ? 10 : 18)) fail("expected a number, not " + s);
      return constant(parse_integer(s.substr(2), 16));
    }
    if (is_number(s)) {
      u64 v = parse_integer(s);
      if (is_float(t)) fail("an integer as a floating-point operand: " + s);
      unsigned bytes = t == Type::none ? 8 : size_of(t);
      return constant(bytes && bytes < 8 ? v & ((u64(1) << bytes * 8) - 1) : v);
    }
    auto symbol = symbols.find(s);
    if (symbol != symbols.end()) return constant(symbol->second);
    int sp = special(s);
    if (sp >= 0) return sp;
    auto it = regs.find(s);
    if (it != regs.end()) return it->second;
    if (s.find_first_not_of("%_$abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") != std::string::npos || (s[0] == '%' && s.size() == 1)) fail("unknown operand " + s);
    return regs[s] = k->registers++;
  }
  static std::vector<std::string> elements(const std::string &s) {
    if (s[0] != '{') return {s};
    if (s.size() < 3 || s.back() != '}') fail("expected a list, not " + s);
    return split(s.substr(1, s.size() - 2));
  }
  std::vector<int> list(const std::string &s, Type t = Type::none) {
    std::vector<int> out;
    for (auto &one : elements(s)) out.push_back(reg(one, t));
    return out;
  }
  std::vector<int> results(const std::string &s) {
    std::vector<int> out;
    for (auto &one : elements(s)) out.push_back(result(one));
    return out;
  }
  // address adds the base register of [base+offset] and sets the offset.
  void address(Instruction *i, const std::string &s) { i->offset = address_offset(i, s); }
  i64 address_offset(Instruction *i, const std::string &s) {
    if (s.size() < 3 || s[0] != '[' || s.back() != ']') fail("expected an address, not " + s);
    std::string body = s.substr(1, s.size() - 2);
    size_t plus = body.find('+');
    i->in.push_back(reg(trim(body.substr(0, plus))));
    return plus == std::string::npos ? 0 : i64(parse_integer(body.substr(plus + 1)));
  }

  void instruction(std::string s, unsigned line) {
    Instruction i{};
    i.line = line;
    std::string text = s;
    if (s[0] == '@') {
      size_t space = s.find_first_of(" \t");
      if (space == std::string::npos) fail("a predicate without an instruction");
      i.negated = s[1] == '!';
      i.predicate = reg(s.substr(1 + i.negated, space - 1 - i.negated));
      s = trim(s.substr(space));
    }
    size_t space = s.find_first_of(" \t");
    std::string name = s.substr(0, space);
    std::vector<std::string> o;
    if (space != std::string::npos) o = split(s.substr(space));
    std::vector<std::string> f = split(name, '.');
    if (f.empty()) fail("an empty instruction");
    decode(&i, name, f, o);
    k->code.push_back(i);
    k->text.push_back(text);
  }

  void need(const std::vector<std::string> &o, size_t n) {
    if (o.size() != n) fail("expected " + std::to_string(n) + " operands");
  }
  // simple decodes operands of one type.
  void simple(Instruction *i, Op op, const std::vector<std::string> &o, size_t n) {
    need(o, n);
    i->op = op;
    i->to = {result(o[0])};
    for (size_t j = 1; j < n; j++) i->in.push_back(reg(o[j], i->type));
  }

  void decode(Instruction *i, const std::string &name, const std::vector<std::string> &f, const std::vector<std::string> &o) {
    const std::string &b = f[0];
    auto has = [&](const char *m) {
      for (size_t j = 1; j < f.size(); j++)
        if (f[j] == m) return true;
      return false;
    };
    // only fails if an instruction has a modifier that is not listed.
    auto only = [&](std::initializer_list<const char *> known) {
      for (size_t j = 1; j + 1 < f.size(); j++) {
        bool ok = false;
        for (const char *m : known) ok = ok || f[j] == m;
        if (!ok) fail("unknown modifier ." + f[j]);
      }
    };
    if (b == "bra") {
      need(o, 1);
      if (name != "bra" && name != "bra.uni") fail("unknown bra");
      i->op = Op::bra;
      branches.push_back({k->code.size(), o[0]});
      return;
    }
    if (b == "ret") {
      if (name != "ret" || !o.empty()) fail("unknown ret");
      i->op = Op::ret;
      return;
    }
    if (b == "bar") {
      if (name != "bar.sync" || o != std::vector<std::string>{"0"}) fail("unknown barrier");
      i->op = Op::bar;
      return;
    }
    if (name == "fence.proxy.async.shared::cta") {
      need(o, 0);
      i->op = Op::fence;
      return;
    }
    if (b == "wgmma") return wgmma(i, name, f, o);
    if (b == "cp") return copy(i, name, o);
    if (b == "mma") {
      if (name != "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32") fail("unknown mma");
      need(o, 4);
      i->op = Op::mma;
      i->to = results(o[0]);
      for (size_t j = 1; j < 4; j++)
        for (int r : list(o[j])) i->in.push_back(r);
      if (i->to.size() != 4 || i->in.size() != 10) fail("mma with other fragments");
      return;
    }
    if (b == "ldmatrix") {
      if (name != "ldmatrix.sync.aligned.m8n8.x4.shared.b16" && name != "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16") fail("unknown ldmatrix");
      need(o, 2);
      i->op = Op::ldmatrix;
      i->transposed = has("trans");
      i->to = results(o[0]);
      if (i->to.size() != 4) fail("ldmatrix with other fragments");
      address(i, o[1]);
      return;
    }
    if (b == "shfl") {
      need(o, 5);
      if (name != "shfl.sync.bfly.b32" || o[3] != "31" || o[4] != "-1") fail("unknown shfl");
      i->op = Op::shfl;
      if (!is_number(o[2])) fail("shfl with a mask that is not a number");
      i->to = {result(o[0])};
      i->in = {reg(o[1]), reg(o[2], Type::u32)};
      return;
    }
    if (b == "cvt") return convert(i, name, f, o);
    if (b == "ex2" || b == "rcp") {
      if (name != "ex2.approx.ftz.f32" && name != "rcp.rn.f32" && name != "rcp.rn.f64") fail("unknown function");
      i->type = type_named(f.back());
      return simple(i, b == "ex2" ? Op::ex2 : Op::rcp, o, 2);
    }
    if (f.size() < 2) fail("unknown instruction");
    i->type = type_named(f.back());
    if (b == "setp") {
      static const std::map<std::string, Compare> all = {{"eq", Compare::eq}, {"ne", Compare::ne}, {"lt", Compare::lt}, {"le", Compare::le}, {"gt", Compare::gt}, {"ge", Compare::ge}, {"equ", Compare::equ},
                                                         {"neu", Compare::neu}, {"ltu", Compare::ltu}, {"leu", Compare::leu}, {"gtu", Compare::gtu}, {"geu", Compare::geu}, {"nan", Compare::nan}};
      if (f.size() != 3 || !all.count(f[1])) fail("unknown comparison");
      i->compare = all.at(f[1]);
      return simple(i, Op::setp, o, 3);
    }
    if (b == "selp") {
      need(o, 4);
      i->op = Op::selp;
      if (!size_of(i->type)) fail("unknown selp");
      i->to = {result(o[0])};
      i->in = {reg(o[1], i->type), reg(o[2], i->type), reg(o[3])};
      return;
    }
    if (b == "ld" || b == "st") {
      only({"param", "global", "shared", "volatile", "v2", "v4"});
      i->op = b == "ld" ? Op::ld : Op::st;
      i->space = has("param") ? Space::param : has("shared") ? Space::shared : has("global") ? Space::global : Space::none;
      if (i->space == Space::none || (b == "st" && i->space == Space::param)) fail("unknown state space");
      need(o, 2);
      address(i, o[b == "ld" ? 1 : 0]);
      auto values = b == "ld" ? results(o[0]) : list(o[1], i->type);
      i->vector = unsigned(values.size());
      if (!size_of(i->type) || size_of(i->type) * i->vector > 16) fail("an access of a size that does not exist");
      if (i->vector != (has("v4") ? 4u : has("v2") ? 2u : 1u)) fail("another number of elements");
      if (b == "ld") i->to = values;
      else i->in.insert(i->in.end(), values.begin(), values.end());
      return;
    }
    if (b == "mov") {
      only({});
      need(o, 2);
      i->to = results(o[0]);
      i->in = list(o[1], i->to.size() > 1 ? Type::none : o[1][0] == '{' ? Type::none : i->type);
      i->op = i->to.size() == 2 ? Op::unpack : i->in.size() == 2 ? Op::pack : Op::mov;
      if (i->to.size() + i->in.size() != (i->op == Op::mov ? 2 : 3) || (i->op != Op::mov && size_of(i->type) < 4)) fail("unknown mov");
      return;
    }
    if (b == "cvta") {
      if (name != "cvta.to.global.u64" && name != "cvta.global.u64") fail("unknown cvta");
      return simple(i, Op::mov, o, 2);
    }
    if (b == "shl" || b == "shr" || b == "bfe") {
      only({});
      need(o, b == "bfe" ? 4 : 3);
      i->op = b == "shl" ? Op::shl : b == "shr" ? Op::shr : Op::bfe;
      if (i->op == Op::bfe && is_signed(i->type)) fail("unknown bfe");
      i->to = {result(o[0])};
      i->in = {reg(o[1], i->type)};
      for (size_t j = 2; j < o.size(); j++) i->in.push_back(reg(o[j], Type::u32));
      return;
    }
    if (b == "mul" && has("wide")) {
      if (i->type != Type::u32) fail("unknown mul.wide");
      return simple(i, Op::mul_wide, o, 3);
    }
    struct Known { const char *name; Op op; size_t operands; };
    static const Known known[] = {{"add", Op::add, 3}, {"sub", Op::sub, 3}, {"mul", Op::mul, 3}, {"mad", Op::mad, 4}, {"fma", Op::fma, 4}, {"div", Op::div, 3}, {"rem", Op::rem, 3},
                                  {"min", Op::min, 3}, {"max", Op::max, 3}, {"neg", Op::neg, 2}, {"and", Op::and_, 3}, {"or", Op::or_, 3}, {"xor", Op::xor_, 3}, {"not", Op::not_, 2}, {"sqrt", Op::sqrt, 2}};
    for (auto &x : known) {
      if (b != x.name) continue;
      // Contraction is off, so all arithmetic in floating point has a rounding mode.
      bool rounds = is_float(i->type) && (x.op == Op::add || x.op == Op::sub || x.op == Op::mul || x.op == Op::fma || x.op == Op::div || x.op == Op::sqrt);
      bool low = !is_float(i->type) && (x.op == Op::mul || x.op == Op::mad);
      if (rounds) only({"rn"});
      else if (low) only({"lo"});
      else only({});
      if (rounds != has("rn") || low != has("lo") || (x.op == Op::fma && i->type != Type::f32) || (x.op == Op::mad && is_float(i->type))) fail("unknown rounding");
      return simple(i, x.op, o, x.operands);
    }
    fail("unknown instruction");
  }

  void convert(Instruction *i, const std::string &name, const std::vector<std::string> &f, const std::vector<std::string> &o) {
    if (name == "cvt.rn.bf16x2.f32") return simple(i, Op::bf16x2, o, 3);
    if (name == "cvt.rn.bf16.f32") return simple(i, Op::bf16, o, 2);
    if (name == "cvt.rni.f32.f32") return simple(i, Op::rint, o, 2);
    if (f.size() < 3) fail("unknown cvt");
    i->type = type_named(f[f.size() - 2]), i->from = type_named(f.back());
    std::string mode = f.size() == 4 ? f[1] : "";
    bool ok = f.size() <= 4;
    if (is_float(i->type) && is_float(i->from)) ok = ok && mode == (size_of(i->type) < size_of(i->from) ? "rn" : "");
    else if (is_float(i->type)) ok = ok && mode == "rn";
    else if (is_float(i->from)) ok = ok && mode == "rzi" && i->type == Type::s32 && i->from == Type::f32;
    else ok = ok && mode.empty();
    if (!ok || !size_of(i->type) || !size_of(i->from)) fail("unknown cvt");
    simple(i, Op::cvt, o, 2);
  }

  void copy(Instruction *i, const std::string &name, const std::vector<std::string> &o) {
    if (name == "cp.async.commit_group") {
      need(o, 0);
      i->op = Op::copy_commit;
      return;
    }
    bool all = name == "cp.async.wait_all";
    if (all || name == "cp.async.wait_group") {
      need(o, all ? 0 : 1);
      i->op = Op::copy_wait;
      i->vector = all ? wait_all : operand_number(o[0]);
      return;
    }
    if ((name != "cp.async.ca.shared.global" && name != "cp.async.cg.shared.global") || o.size() < 3 || o.size() > 4) fail("unknown cp");
    i->op = Op::copy;
    i->vector = operand_number(o[2]);
    if (i->vector != 16 && (name == "cp.async.cg.shared.global" || (i->vector != 4 && i->vector != 8))) fail("a copy of a size that does not exist");
    address(i, o[0]);
    i->source_offset = address_offset(i, o[1]);
    if (o.size() == 4) i->in.push_back(reg(o[3], Type::u32));  // bytes to copy
  }
  static unsigned operand_number(const std::string &s) {
    u64 v = s.empty() || !is_number(s) ? ~u64(0) : parse_integer(s);
    if (v > 16) fail("expected a small number, not " + s);
    return unsigned(v);
  }

  void wgmma(Instruction *i, const std::string &name, const std::vector<std::string> &f, const std::vector<std::string> &o) {
    if (name == "wgmma.fence.sync.aligned" || name == "wgmma.commit_group.sync.aligned" || (name == "wgmma.wait_group.sync.aligned" && o == std::vector<std::string>{"0"})) {
      i->op = Op::wgmma_group;
      return;
    }
    if (f.size() != 8 || f[1] != "mma_async" || !has_prefix(f[4], "m64n") || f[5] != "f32" || f[6] != "bf16" || f[7] != "bf16" || o.size() < 5) fail("unknown wgmma");
    i->op = Op::wgmma;
    i->vector = unsigned(strtoul(f[4].c_str() + 4, nullptr, 10));
    if (f[4] != "m64n" + std::to_string(i->vector) + "k16" || i->vector % 8 || !i->vector || i->vector > 256) fail("unknown wgmma");
    i->to = results(o[0]);
    if (i->to.size() != i->vector / 2) fail("wgmma with another number of sums");
    i->from_registers = o[1][0] == '{';
    i->in = list(o[1]);
    if (i->in.size() != (i->from_registers ? 4u : 1u)) fail("wgmma with other fragments");
    i->in.push_back(reg(o[2]));
    i->in.push_back(reg(o[3]));  // scale-d
    std::vector<std::string> rest(o.begin() + 4, o.end());
    if (i->from_registers ? rest != std::vector<std::string>{"1", "1", "1"} : rest != std::vector<std::string>{"1", "1", "0", "0"}) fail("wgmma with other factors or layouts");
    i->transposed = i->from_registers;
  }
};

// number parses the first decimal number at or after a position.
u32 number(const std::string &s, size_t at) {
  if (at != std::string::npos) at = s.find_first_of("0123456789", at);
  if (at == std::string::npos) fail("expected a number in " + s);
  auto v = strtoul(s.c_str() + at, nullptr, 10);
  if (v > most_shared) fail("a number that is too large in " + s);
  return u32(v);
}

// alignment parses ".align N".
u32 alignment(const std::string &s) {
  u32 v = number(s, s.find(".align"));
  if (v == 0 || v > 128 || (v & (v - 1))) fail("unknown alignment in " + s);
  return v;
}

// shared_variable parses ".shared .align 4 .b8 name[8448]".
void shared_variable(const std::string &s, std::map<std::string, Shared> *to) {
  size_t type = s.find(".b8"), open = s.find('[');
  if (type == std::string::npos || open == std::string::npos) fail("unknown declaration " + s);
  if (open < type + 3) fail("unknown declaration " + s);
  if (!to->insert({trim(s.substr(type + 3, open - type - 3)), {alignment(s), number(s, open)}}).second) fail("a second declaration " + s);
}

}  // namespace

std::unique_ptr<Module> parse(const std::string &text, std::string *why) {
  unsigned number_of_line = 0;
  try {
    auto m = std::make_unique<Module>();
    std::map<std::string, Shared> global, local;
    std::unique_ptr<Kernel> k;
    std::unique_ptr<Parser> p;
    std::vector<std::pair<std::string, unsigned>> body;
    bool in_head = false, in_body = false, closing = false;
    std::string head;
    size_t at = 0;
    while (at < text.size()) {
      size_t end = text.find('\n', at);
      if (end == std::string::npos) end = text.size();
      std::string line = text.substr(at, end - at);
      at = end + 1;
      number_of_line++;
      if (line.find("// -- End function") != std::string::npos) closing = true;
      line = trim(line.substr(0, line.find("//")));
      if (line.empty()) continue;
      if (in_head) {
        if (line != "{") {
          head += line + " ";
          continue;
        }
        in_head = false, in_body = true, closing = false;
        k = std::make_unique<Kernel>();
        p = std::make_unique<Parser>();
        p->k = k.get();
        local = global;
        body.clear();
        size_t open = head.find('('), close = head.find(')');
        if (open == std::string::npos || close == std::string::npos || close < open) fail("an entry without parameters");
        k->name = trim(head.substr(0, open));
        size_t bytes = 0;
        for (auto &one : split(head.substr(open + 1, close - open - 1))) {
          // .param [.align 8] .b8 name[120] or .param .u64 name
          size_t bracket = one.find('['), space = one.find_last_of(" \t", bracket == std::string::npos ? one.size() : bracket), dot = space == std::string::npos ? space : one.rfind('.', space);
          if (dot == std::string::npos || !has_prefix(one, ".param")) fail("unknown parameter " + one);
          unsigned element = size_of(type_named(trim(one.substr(dot + 1, space - dot - 1))));
          size_t size = element * (bracket == std::string::npos ? 1 : number(one, bracket)), align = one.find(".align") == std::string::npos ? element : alignment(one);
          if (!size || size > most_params) fail("unknown parameter " + one);
          bytes = (bytes + align - 1) / align * align;
          if (!p->symbols.insert({trim(one.substr(space, bracket == std::string::npos ? bracket : bracket - space)), bytes}).second) fail("a second parameter " + one);
          k->offsets.push_back(bytes), k->sizes.push_back(size);
          bytes += size;
        }
        if (bytes > most_params) fail("too many parameters");
        k->param_bytes = bytes;
        continue;
      }
      if (!in_body) {
        if (has_prefix(line, ".shared")) shared_variable(line, &global);
        size_t entry = line.find(".entry ");
        if (entry != std::string::npos) {
          in_head = true, head = line.substr(entry + 7) + " ";
        } else if (!has_prefix(line, ".shared") && !has_prefix(line, ".extern .shared") && !has_prefix(line, ".version") && !has_prefix(line, ".target") && !has_prefix(line, ".address_size")) {
          fail("unknown text outside of an entry: " + line);
        }
        continue;
      }
      if (has_prefix(line, ".shared")) {
        shared_variable(line, &local);
        continue;
      }
      if (!(closing && line == "}")) {
        body.push_back({line, number_of_line});
        continue;
      }
      in_body = false;
      // All variables are known: the addresses of shared memory follow.
      u32 shared = shared_begin;
      for (auto &v : local) {
        shared = (shared + v.second.align - 1) / v.second.align * v.second.align;
        p->symbols[v.first] = shared;
        shared += v.second.bytes;
        if (shared > most_shared) fail("too much shared memory");
      }
      k->static_end = shared;
      shared = (shared + 15) / 16 * 16;
      k->dynamic = shared % 32 == 0 ? shared + 16 : shared;
      p->symbols["dynamic_shared"] = k->dynamic;
      unsigned last = number_of_line;
      for (auto &l : body) {
        std::string s = l.first;
        number_of_line = l.second;
        // { .reg .b32 tmp; mov.b64 {tmp, %r1}, %rd1; }
        size_t declared = s.find(" tmp; ");
        if (has_prefix(s, "{ .reg .b") && declared != std::string::npos && s.substr(s.size() - 2) == " }") s = s.substr(declared + 6, s.size() - declared - 8);
        if (s == "{" || s == "}" || has_prefix(s, ".reg") || has_prefix(s, ".loc") || has_prefix(s, ".pragma")) continue;
        if (s.back() == ':') {
          if (!p->labels.insert({s.substr(0, s.size() - 1), int(k->code.size())}).second) fail("a second label " + s);
          continue;
        }
        if (s.back() != ';') fail("expected a semicolon: " + s);
        s.pop_back();
        p->instruction(trim(s), number_of_line);
      }
      number_of_line = last;
      for (auto &b : p->branches) {
        auto it = p->labels.find(b.second);
        if (it == p->labels.end()) fail("unknown label " + b.second);
        k->code[b.first].target = it->second;
      }
      k->names.resize(size_t(k->registers));
      for (auto &r : p->regs) k->names[size_t(r.second)] = r.first;
      check(*k);
      std::string name = k->name;
      if (!m->kernels.insert({name, std::move(k)}).second) fail("a second entry " + name);
    }
    if (in_head || in_body) fail("the end of the text is in an entry");
    return m;
  } catch (Fault &e) {
    *why = e.message;
    return nullptr;
  } catch (std::exception &e) {
    *why = "line " + std::to_string(number_of_line) + ": " + e.what();
    return nullptr;
  }
}

}  // namespace gpusim::ptx
