// What C++ leaves undefined: an index outside of an array of known size, a vector that is not
// aligned, an overflow. The compiler calls these functions (-fsanitize=bounds and others), whose own
// library is not linked; each is told where in the source it was.
#include <string>

#include "runtime.h"

namespace {

struct Where {
  const char* file;
  unsigned line, column;
};

void undefined(const Where* where, const char* what, bool goes_on) {
  if (!cuda_on_cpu::in_kernel()) return;
  cuda_on_cpu::found(std::string(what) + ", in line " + std::to_string(where->line) +
                     " of the compiled source, by thread " +
                     std::to_string(cuda_on_cpu::current_thread()));
  if (!goes_on) cuda_on_cpu::abandon_block();
}

}  // namespace

#define HANDLER(name, what, goes_on) \
  void __ubsan_handle_##name(const Where* where, ...) { undefined(where, what, goes_on); }

extern "C" {
HANDLER(out_of_bounds, "an index outside of an array", false)
HANDLER(type_mismatch_v1, "a vector at an address that is not aligned, or null", false)
HANDLER(add_overflow, "an overflow of an addition", true)
HANDLER(sub_overflow, "an overflow of a subtraction", true)
HANDLER(mul_overflow, "an overflow of a multiplication", true)
HANDLER(negate_overflow, "an overflow of a negation", true)
HANDLER(divrem_overflow, "a division by zero, or its overflow", false)
HANDLER(shift_out_of_bounds, "a shift by too many bits", true)
}
