// Functions with stacks of their own, and switching between them.
#pragma once

#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace cuda_on_cpu {

#if defined(__x86_64__)
// registers that a function must keep are on the stack; `swapcontext` would make two system calls
struct Fiber {
  void* stack;
};

extern "C" void cuda_on_cpu_switch(void** from, void* to);
asm(R"(
.text
.type cuda_on_cpu_switch, @function
cuda_on_cpu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cuda_on_cpu_switch, .-cuda_on_cpu_switch
)");

inline void switch_fiber(Fiber* from, Fiber* to) { cuda_on_cpu_switch(&from->stack, to->stack); }

inline void start_fiber(Fiber* fiber, char* stack, size_t size, void (*function)()) {
  void** top = reinterpret_cast<void**>(stack + size) - 1;  // as behind a call
  *top = nullptr;  // where `function` would return to
  *--top = reinterpret_cast<void*>(function);
  for (int n = 0; n < 6; ++n) *--top = nullptr;
  fiber->stack = top;
}
#else
struct Fiber {
  ucontext_t context;
};

inline void switch_fiber(Fiber* from, Fiber* to) { swapcontext(&from->context, &to->context); }

inline void start_fiber(Fiber* fiber, char* stack, size_t size, void (*function)()) {
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = stack;
  fiber->context.uc_stack.ss_size = size;
  fiber->context.uc_link = nullptr;
  makecontext(&fiber->context, function, 0);
}
#endif

}  // namespace cuda_on_cpu
