// What kernels did wrong, as lines of text: "kernel: what" and where in the library, if known.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>

#include "address_sanitizer.h"
#include "runtime.h"

namespace cuda_on_cpu {
namespace {
constexpr size_t kMost = 20;  // of a launch that does everything wrong, some say enough
std::vector<std::string> texts;
const char* kernel = "";
}  // namespace

void name_kernel(const char* name) { kernel = name; }

void found(const std::string& text, const void* from) {
  if (texts.size() >= kMost) return;
  std::string line = std::string(kernel) + ": " + text;
  Dl_info info;
  if (from && dladdr(from, &info) && info.dli_fname) {
    char place[32];
    // the access is in front of where the hook returns to
    std::snprintf(place, sizeof place, " @%lx ",
                  static_cast<unsigned long>(static_cast<const char*>(from) - 1 -
                                             static_cast<const char*>(info.dli_fbase)));
    line += place + std::string(info.dli_fname);
  }
  if (std::find(texts.begin(), texts.end(), line) == texts.end()) texts.push_back(line);
}

void watch_addresses() {
  if (!__asan_set_error_report_callback) return;
  __asan_set_error_report_callback([](const char* report) {
    // "==1==ERROR: AddressSanitizer: what on address .."
    std::string text = report;
    const size_t begin = text.find("AddressSanitizer");
    found(text.substr(begin, text.find(" on address", begin) - begin));
  });
}

std::string findings() {
  std::string all;
  for (const std::string& text : texts) all += text + "\n";
  texts.clear();
  return all;
}

}  // namespace cuda_on_cpu
