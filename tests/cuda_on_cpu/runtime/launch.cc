// Modules that TVM calls: the kernels of a program, and the functions that launch them.
#include <dlfcn.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/reflection/registry.h>

#include <string>
#include <vector>

#include "runtime.h"

struct MutablePlace {
  unsigned x, y, z;
};
extern MutablePlace cuda_on_cpu_block, cuda_on_cpu_threads, cuda_on_cpu_blocks;

namespace cuda_on_cpu {
namespace {

namespace ffi = tvm::ffi;

// TVM wants modules that can be saved; these never are
constexpr int kProperties = ffi::Module::kRunnable | ffi::Module::kBinarySerializable;

std::vector<Range> given;  // the arrays of the function that was called last

Range range_of(const DLTensor& array) {
  int64_t bytes = (array.dtype.bits * array.dtype.lanes + 7) / 8;
  for (int dim = 0; dim < array.ndim; ++dim) bytes *= array.shape[dim];
  const uintptr_t begin = reinterpret_cast<uintptr_t>(array.data) + array.byte_offset;
  return {begin, begin + static_cast<uintptr_t>(bytes)};
}

class Kernels : public ffi::ModuleObj {
 public:
  explicit Kernels(std::string prefix) : prefix_(prefix) {}
  const char* kind() const final { return "cuda_on_cpu"; }
  int GetPropertyMask() const final { return kProperties; }

  // a kernel is in a library that is loaded before the first call
  ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final {
    const std::string symbol = prefix_ + std::string(name);
    const auto* kernel = static_cast<const Kernel*>(dlsym(RTLD_DEFAULT, symbol.c_str()));
    if (!kernel) return std::nullopt;
    return ffi::Function::FromPacked([kernel](ffi::PackedArgs arguments, ffi::Any*) {
      std::vector<Value> values(kernel->count);
      std::vector<Range> arrays = given;
      for (int n = 0; n < kernel->count; ++n) {
        const ffi::AnyView one = arguments[n];
        if (auto tensor = one.try_cast<DLTensor*>()) {
          arrays.push_back(range_of(**tensor));
          values[n].array = reinterpret_cast<void*>(arrays.back().begin);
        } else if (kernel->sizes[n]) {
          values[n].array = one.cast<void*>();
        } else if (one.type_index() == ffi::TypeIndex::kTVMFFIFloat) {
          values[n].real = one.cast<double>();
        } else {
          values[n].integer = one.cast<int64_t>();
        }
      }
      std::vector<int64_t> extents;
      for (int n = kernel->count; n < arguments.size(); ++n) {
        extents.push_back(arguments[n].cast<int64_t>());
      }
      launch(*kernel, values.data(), extents.data(), arrays);
    });
  }

 private:
  std::string prefix_;
};

// the functions of the host, whose arrays are what their kernels may access
class Host : public ffi::ModuleObj {
 public:
  explicit Host(ffi::Module inner) : inner_(inner) { ImportModule(inner); }
  const char* kind() const final { return "cuda_on_cpu.host"; }
  int GetPropertyMask() const final { return kProperties; }

  ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final {
    ffi::Optional<ffi::Function> found = inner_->GetFunction(name);
    if (!found) return std::nullopt;
    ffi::Function function = *found;
    return ffi::Function::FromPacked([function](ffi::PackedArgs values, ffi::Any* result) {
      given.clear();
      for (int n = 0; n < values.size(); ++n) {
        if (auto tensor = values[n].try_cast<DLTensor*>()) given.push_back(range_of(**tensor));
      }
      function.CallPacked(values, result);
      given.clear();
    });
  }

 private:
  ffi::Module inner_;
};

TVM_FFI_STATIC_INIT_BLOCK() {
  watch_addresses();
  namespace refl = ffi::reflection;
  refl::GlobalDef()
      .def("cuda_on_cpu.kernels",
           [](ffi::String prefix) { return ffi::Module(ffi::make_object<Kernels>(prefix)); })
      .def("cuda_on_cpu.host",
           [](ffi::Module inner) { return ffi::Module(ffi::make_object<Host>(inner)); })
      .def("cuda_on_cpu.findings", []() { return ffi::String(findings()); });
}

}  // namespace

void launch(const Kernel& kernel, const Value* arguments, const int64_t* extents,
            const std::vector<Range>& arrays) {
  name_kernel(kernel.name);
  MutablePlace &threads = cuda_on_cpu_threads, &blocks = cuda_on_cpu_blocks;
  threads = blocks = {1, 1, 1};
  for (int n = 0; kernel.extents[n]; ++n) {
    const unsigned extent = static_cast<unsigned>(extents[n]);
    const char axis = kernel.extents[n];
    MutablePlace& shape = axis < 'a' ? blocks : threads;
    (axis % 32 == 'x' % 32 ? shape.x : axis % 32 == 'y' % 32 ? shape.y : shape.z) = extent;
    if (extents[n] < 1) {
      found("a launch of no blocks or threads, which CUDA refuses");
      return;
    }
  }
  const unsigned size = threads.x * threads.y * threads.z;
  if (size > 1024) {
    found("a launch of " + std::to_string(size) + " threads a block");
    return;
  }
  begin_launch(kernel, arguments, arrays);
  for (unsigned z = 0; z < blocks.z; ++z) {
    for (unsigned y = 0; y < blocks.y; ++y) {
      for (unsigned x = 0; x < blocks.x; ++x) {
        cuda_on_cpu_block = {x, y, z};
        begin_block();
        run_block(kernel.call, arguments, static_cast<int>(size));
      }
    }
  }
  end_launch();
}

}  // namespace cuda_on_cpu
