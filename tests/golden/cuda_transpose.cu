extern "C" __global__ void __launch_bounds__(256) main_kernel(float* __restrict__ T_transpose_ptr, float* __restrict__ p_A_ptr);
extern "C" __global__ void __launch_bounds__(256) main_kernel(float* __restrict__ T_transpose_ptr, float* __restrict__ p_A_ptr) {
  __shared__ alignas(64) float p_A_shared_ptr[1056];
  int cse_v1 = (((int)blockIdx.x) % 10);
  int cse_v2 = (((int)blockIdx.x) / 10);
  int cse_v4 = ((((int)blockIdx.x) % 10) * 8);
  int cse_v5 = ((((int)blockIdx.x) / 10) * 32);
  for (int ax0_0 = 0; ax0_0 < 4; ++ax0_0) {
    if ((((((((int)blockIdx.x) % 10) * 8) + (ax0_0 * 2)) + (((int)threadIdx.y) >> 2)) < 75) && ((((((int)blockIdx.x) / 10) * 32) + ((int)threadIdx.x)) < 257)) {
      p_A_shared_ptr[(((ax0_0 * 264) + (((int)threadIdx.y) * 33)) + ((int)threadIdx.x))] = p_A_ptr[((((((((int)blockIdx.x) % 10) * 8224) + (ax0_0 * 2056)) + (((int)threadIdx.y) * 257)) + ((((int)blockIdx.x) / 10) * 32)) + ((int)threadIdx.x))];
    }
  }
  __syncthreads();
  for (int ax0_1_0 = 0; ax0_1_0 < 4; ++ax0_1_0) {
    int cse_v3 = (ax0_1_0 * 8);
    if ((((((((int)blockIdx.x) / 10) * 32) + (ax0_1_0 * 8)) + ((int)threadIdx.y)) < 257) && ((((((int)blockIdx.x) % 10) * 8) + (((int)threadIdx.x) >> 2)) < 75)) {
      T_transpose_ptr[((((((((int)blockIdx.x) / 10) * 9600) + (ax0_1_0 * 2400)) + (((int)threadIdx.y) * 300)) + ((((int)blockIdx.x) % 10) * 32)) + ((int)threadIdx.x))] = p_A_shared_ptr[(((((int)threadIdx.x) * 33) + (ax0_1_0 * 8)) + ((int)threadIdx.y))];
    }
  }
}
