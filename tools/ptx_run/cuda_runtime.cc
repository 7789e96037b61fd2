// The part of libcudart that nvcc's host objects and the GPU tests call, for translated kernels:
// one device, whose memory is the machine's and whose streams do their work at once. Linked in
// place of libcudart; a function that is missing here is an error of the linker.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "tools/ptx_run/machine.h"

namespace embla::ptx_run {
namespace {

// Names of kernels by the address of the function that stands for them on the host.
std::map<const void*, std::string>& Names() {
  static std::map<const void*, std::string> names;
  return names;
}

const Kernel& KernelOf(const void* function) {
  const std::string& name = Names()[function];
  const Kernel* const kernel = FindKernel(name);
  if (kernel != nullptr) return *kernel;
  std::fprintf(stderr, "PTX: no kernel \"%s\"\n", name.c_str());
  std::abort();
}

}  // namespace
}  // namespace embla::ptx_run

extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  embla::ptx_run::Names()[function] = name;
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}

// How nvcc compiles <<<...>>> and the functions behind it, which nothing here calls.
unsigned __cudaPushCallConfiguration(dim3, dim3, std::size_t, cudaStream_t) { std::abort(); }
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, std::size_t*, void*) { std::abort(); }
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*) { std::abort(); }
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, std::size_t, cudaStream_t) {
  std::abort();
}
cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, std::size_t, cudaStream_t) {
  std::abort();
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function,
                                void** arguments) {
  embla::ptx_run::Queue(embla::ptx_run::KernelOf(function),
                        {config->gridDim.x, config->gridDim.y, config->blockDim.x}, arguments);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  *memory = embla::ptx_run::Allocate(bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  embla::ptx_run::Free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "an error of a machine without any"; }

}  // extern "C"
