// What the parts of the runtime know of each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "interface.h"

namespace cuda_on_cpu {

// findings.cc
void found(const std::string& text, const void* from = nullptr);
std::string findings();  // and forget them
void watch_addresses();  // note what AddressSanitizer reports

// block.cc
void run_block(void (*call)(const Value*), const Value* arguments, int threads);
[[noreturn]] void abandon_block();
bool in_kernel();
bool on_stack(uintptr_t address);
int current_thread();
void name_kernel(const char* name);

// accesses.cc
void begin_launch(const Kernel& kernel, const Value* arguments, const std::vector<Range>& given);
void begin_block();
void begin_phase();  // all threads of a block have met
void end_launch();

// memory.cc
bool block_of_memory(uintptr_t address, Range* range);

// launch.cc
void launch(const Kernel& kernel, const Value* arguments, const int64_t* extents,
            const std::vector<Range>& given);

}  // namespace cuda_on_cpu
