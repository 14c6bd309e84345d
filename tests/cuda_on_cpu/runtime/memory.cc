// Device memory: TVM's interface of a CUDA device, whose memory is the host's.
//
// Between two arrays lies nothing that may be accessed; what is not yet written is NaN.
#include <tvm/ffi/reflection/registry.h>
#include <tvm/runtime/device_api.h>

#include <cstdlib>
#include <cstring>
#include <map>

#include "address_sanitizer.h"
#include "runtime.h"

namespace cuda_on_cpu {
namespace {

constexpr size_t kGuard = 4096, kAlignment = 4096;
std::map<uintptr_t, size_t> blocks;
bool exists = false;

class Device : public tvm::runtime::DeviceAPI {
 public:
  void SetDevice(tvm::Device) final {}

  void GetAttr(tvm::Device device, tvm::runtime::DeviceAttrKind kind, tvm::ffi::Any* value) final {
    using namespace tvm::runtime;
    switch (kind) {
      case kExist:
        *value = static_cast<int>(exists && device.device_id == 0);
        break;
      // those of an H100, which the library schedules for where there is no GPU
      case kMaxThreadsPerBlock:
        *value = 1024;
        break;
      case kWarpSize:
        *value = 32;
        break;
      case kMaxSharedMemoryPerBlock:
        *value = 48 << 10;
        break;
      case kComputeVersion:
        *value = tvm::ffi::String("9.0");
        break;
      case kDeviceName:
        *value = tvm::ffi::String("CUDA on a CPU");
        break;
      case kMultiProcessorCount:
        *value = 132;
        break;
      default:
        break;
    }
  }

  void* AllocDataSpace(tvm::Device, size_t bytes, size_t, DLDataType) final {
    const size_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    char* memory = static_cast<char*>(std::aligned_alloc(kAlignment, size + 2 * kGuard));
    TVM_FFI_CHECK(memory, RuntimeError) << "no memory for " << bytes << " bytes";
    std::memset(memory, 0xff, size + 2 * kGuard);
    forbid(memory, size + 2 * kGuard);
    allow(memory + kGuard, bytes);
    blocks[reinterpret_cast<uintptr_t>(memory + kGuard)] = bytes;
    return memory + kGuard;
  }

  void FreeDataSpace(tvm::Device, void* memory) final {
    const auto block = blocks.find(reinterpret_cast<uintptr_t>(memory));
    const size_t size = (block->second + kAlignment - 1) / kAlignment * kAlignment;
    allow(static_cast<char*>(memory) - kGuard, size + 2 * kGuard);
    blocks.erase(block);
    std::free(static_cast<char*>(memory) - kGuard);
  }

  void StreamSync(tvm::Device, TVMStreamHandle) final {}

 protected:
  void CopyDataFromTo(const void* from, size_t from_offset, void* to, size_t to_offset,
                      size_t bytes, tvm::Device, tvm::Device, DLDataType, TVMStreamHandle) final {
    std::memcpy(static_cast<char*>(to) + to_offset, static_cast<const char*>(from) + from_offset,
                bytes);
  }
};

}  // namespace

bool block_of_memory(uintptr_t address, Range* range) {
  auto above = blocks.upper_bound(address);
  if (above == blocks.begin()) return false;
  --above;
  if (address >= above->first + above->second) return false;
  *range = {above->first, above->first + above->second};
  return true;
}

TVM_FFI_STATIC_INIT_BLOCK() {
  namespace refl = tvm::ffi::reflection;
  refl::GlobalDef()
      .def_packed("device_api.cuda",
                  [](tvm::ffi::PackedArgs, tvm::ffi::Any* value) {
                    static Device device;
                    *value = static_cast<void*>(&device);
                  })
      .def("cuda_on_cpu.set_exists", [](bool value) { exists = value; });
}

}  // namespace cuda_on_cpu
