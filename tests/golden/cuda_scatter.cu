extern "C" __global__ void __launch_bounds__(32) dE_scatter_updates_kernel(float* __restrict__ dE_scatter_updates_ptr, float* __restrict__ p_E_ptr, float* __restrict__ p_H_ptr, int* __restrict__ p_index_ptr);
extern "C" __global__ void __launch_bounds__(256) dE_scatter_kernel(float* __restrict__ out_ptr);
extern "C" __global__ void __launch_bounds__(256) dE_scatter_kernel_1(float* __restrict__ out_ptr, int* __restrict__ p0_ptr, float* __restrict__ updates_ptr);
extern "C" __global__ void __launch_bounds__(32) dE_scatter_updates_kernel(float* __restrict__ dE_scatter_updates_ptr, float* __restrict__ p_E_ptr, float* __restrict__ p_H_ptr, int* __restrict__ p_index_ptr) {
  int cse_v1 = ((((int)blockIdx.x) * 32) + ((int)threadIdx.x));
  dE_scatter_updates_ptr[((((int)blockIdx.x) * 32) + ((int)threadIdx.x))] = ((0x1p+1f/*2.000000e+00*/ * p_H_ptr[((((int)blockIdx.x) * 32) + ((int)threadIdx.x))]) * p_E_ptr[((p_index_ptr[((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 3))] * 8) + (((int)threadIdx.x) & 7))]);
}

extern "C" __global__ void __launch_bounds__(256) dE_scatter_kernel(float* __restrict__ out_ptr) {
  if (((((int)blockIdx.x) * 16) + (((int)threadIdx.x) >> 4)) < 25) {
    out_ptr[((((int)blockIdx.x) * 256) + ((int)threadIdx.x))] = 0x0p+0f/*0.000000e+00*/;
  }
}

extern "C" __global__ void __launch_bounds__(256) dE_scatter_kernel_1(float* __restrict__ out_ptr, int* __restrict__ p0_ptr, float* __restrict__ updates_ptr) {
  if (((int)threadIdx.x) < 160) {
    int cse_v1 = (((int)threadIdx.x) >> 3);
    if ((0 <= p0_ptr[(((int)threadIdx.x) >> 3)]) && (p0_ptr[(((int)threadIdx.x) >> 3)] < 50)) {
      atomicAdd((&(out_ptr[((p0_ptr[(((int)threadIdx.x) >> 3)] * 8) + (((int)threadIdx.x) & 7))])), updates_ptr[((int)threadIdx.x)]);
    }
  }
}
