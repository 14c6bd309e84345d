extern "C" __global__ void __launch_bounds__(128) main_kernel(float* __restrict__ p0_ptr, float* __restrict__ p1_ptr, float* __restrict__ r0_ptr, float* __restrict__ r1_ptr);
extern "C" __global__ void __launch_bounds__(128) main_kernel(float* __restrict__ p0_ptr, float* __restrict__ p1_ptr, float* __restrict__ r0_ptr, float* __restrict__ r1_ptr) {
  alignas(64) float total_0_ptr[1];
  alignas(64) float other_ptr[1];
  __shared__ alignas(64) float shared_0_ptr[4];
  __shared__ alignas(64) float row_0_ptr[1];
  alignas(64) float total_0_ptr_1[1];
  alignas(64) float value_1_ptr[1];
  __shared__ alignas(64) float row_4_ptr[70];
  alignas(64) float other_ptr_1[1];
  __shared__ alignas(64) float row_1_ptr[1];
  alignas(64) float total_0_ptr_2[1];
  alignas(64) float value_1_ptr_1[1];
  alignas(64) float other_ptr_2[1];
  __shared__ alignas(64) float row_2_ptr[1];
  alignas(64) float value_0_ptr[1];
  __shared__ alignas(64) float row_3_ptr[1];
  alignas(64) float value_0_ptr_1[1];
  total_0_ptr[0] = -0x1.fffffep+127f/*-3.402823e+38*/;
  int again = 0;
  int cse_v3 = ((((int)blockIdx.x) * 70) + ((int)threadIdx.x));
  if (((int)threadIdx.x) < 70) {
    total_0_ptr[0] = max(total_0_ptr[0], p0_ptr[((((int)blockIdx.x) * 70) + ((int)threadIdx.x))]);
  }
  other_ptr[0] = __shfl_down_sync((uint)4294967295, total_0_ptr[0], 16, 32);
  total_0_ptr[0] = max(total_0_ptr[0], other_ptr[0]);
  other_ptr[0] = __shfl_down_sync((uint)4294967295, total_0_ptr[0], 8, 32);
  total_0_ptr[0] = max(total_0_ptr[0], other_ptr[0]);
  other_ptr[0] = __shfl_down_sync((uint)4294967295, total_0_ptr[0], 4, 32);
  total_0_ptr[0] = max(total_0_ptr[0], other_ptr[0]);
  other_ptr[0] = __shfl_down_sync((uint)4294967295, total_0_ptr[0], 2, 32);
  total_0_ptr[0] = max(total_0_ptr[0], other_ptr[0]);
  other_ptr[0] = __shfl_down_sync((uint)4294967295, total_0_ptr[0], 1, 32);
  total_0_ptr[0] = max(total_0_ptr[0], other_ptr[0]);
  int cse_v1 = (((int)threadIdx.x) & 31);
  int cse_v2 = (((int)threadIdx.x) >> 5);
  if ((((int)threadIdx.x) % 32) == 0) {
    shared_0_ptr[(((int)threadIdx.x) >> 5)] = total_0_ptr[0];
  }
  __syncthreads();
  if (((int)threadIdx.x) < 4) {
    total_0_ptr[0] = shared_0_ptr[((int)threadIdx.x)];
  }
  other_ptr[0] = __shfl_down_sync((uint)4294967295, total_0_ptr[0], 2, 32);
  total_0_ptr[0] = max(total_0_ptr[0], other_ptr[0]);
  other_ptr[0] = __shfl_down_sync((uint)4294967295, total_0_ptr[0], 1, 32);
  total_0_ptr[0] = max(total_0_ptr[0], other_ptr[0]);
  if (((int)threadIdx.x) == 0) {
    row_0_ptr[0] = total_0_ptr[0];
  }
  __syncthreads();
  total_0_ptr_1[0] = 0x0p+0f/*0.000000e+00*/;
  int again_1 = 0;
  if (((int)threadIdx.x) < 70) {
    value_1_ptr[0] = expf((p0_ptr[((((int)blockIdx.x) * 70) + ((int)threadIdx.x))] - row_0_ptr[0]));
    row_4_ptr[((int)threadIdx.x)] = value_1_ptr[0];
    total_0_ptr_1[0] = (total_0_ptr_1[0] + value_1_ptr[0]);
  }
  other_ptr_1[0] = __shfl_down_sync((uint)4294967295, total_0_ptr_1[0], 16, 32);
  total_0_ptr_1[0] = (total_0_ptr_1[0] + other_ptr_1[0]);
  other_ptr_1[0] = __shfl_down_sync((uint)4294967295, total_0_ptr_1[0], 8, 32);
  total_0_ptr_1[0] = (total_0_ptr_1[0] + other_ptr_1[0]);
  other_ptr_1[0] = __shfl_down_sync((uint)4294967295, total_0_ptr_1[0], 4, 32);
  total_0_ptr_1[0] = (total_0_ptr_1[0] + other_ptr_1[0]);
  other_ptr_1[0] = __shfl_down_sync((uint)4294967295, total_0_ptr_1[0], 2, 32);
  total_0_ptr_1[0] = (total_0_ptr_1[0] + other_ptr_1[0]);
  other_ptr_1[0] = __shfl_down_sync((uint)4294967295, total_0_ptr_1[0], 1, 32);
  total_0_ptr_1[0] = (total_0_ptr_1[0] + other_ptr_1[0]);
  if ((((int)threadIdx.x) % 32) == 0) {
    shared_0_ptr[(((int)threadIdx.x) >> 5)] = total_0_ptr_1[0];
  }
  __syncthreads();
  if (((int)threadIdx.x) < 4) {
    total_0_ptr_1[0] = shared_0_ptr[((int)threadIdx.x)];
  }
  other_ptr_1[0] = __shfl_down_sync((uint)4294967295, total_0_ptr_1[0], 2, 32);
  total_0_ptr_1[0] = (total_0_ptr_1[0] + other_ptr_1[0]);
  other_ptr_1[0] = __shfl_down_sync((uint)4294967295, total_0_ptr_1[0], 1, 32);
  total_0_ptr_1[0] = (total_0_ptr_1[0] + other_ptr_1[0]);
  if (((int)threadIdx.x) == 0) {
    row_1_ptr[0] = total_0_ptr_1[0];
  }
  __syncthreads();
  total_0_ptr_2[0] = 0x0p+0f/*0.000000e+00*/;
  int again_2 = 0;
  if (((int)threadIdx.x) < 70) {
    value_1_ptr_1[0] = (row_4_ptr[((int)threadIdx.x)] / row_1_ptr[0]);
    r0_ptr[((((int)blockIdx.x) * 70) + ((int)threadIdx.x))] = value_1_ptr_1[0];
    total_0_ptr_2[0] = (total_0_ptr_2[0] + (p1_ptr[((((int)blockIdx.x) * 70) + ((int)threadIdx.x))] * value_1_ptr_1[0]));
  }
  other_ptr_2[0] = __shfl_down_sync((uint)4294967295, total_0_ptr_2[0], 16, 32);
  total_0_ptr_2[0] = (total_0_ptr_2[0] + other_ptr_2[0]);
  other_ptr_2[0] = __shfl_down_sync((uint)4294967295, total_0_ptr_2[0], 8, 32);
  total_0_ptr_2[0] = (total_0_ptr_2[0] + other_ptr_2[0]);
  other_ptr_2[0] = __shfl_down_sync((uint)4294967295, total_0_ptr_2[0], 4, 32);
  total_0_ptr_2[0] = (total_0_ptr_2[0] + other_ptr_2[0]);
  other_ptr_2[0] = __shfl_down_sync((uint)4294967295, total_0_ptr_2[0], 2, 32);
  total_0_ptr_2[0] = (total_0_ptr_2[0] + other_ptr_2[0]);
  other_ptr_2[0] = __shfl_down_sync((uint)4294967295, total_0_ptr_2[0], 1, 32);
  total_0_ptr_2[0] = (total_0_ptr_2[0] + other_ptr_2[0]);
  if ((((int)threadIdx.x) % 32) == 0) {
    shared_0_ptr[(((int)threadIdx.x) >> 5)] = total_0_ptr_2[0];
  }
  __syncthreads();
  if (((int)threadIdx.x) < 4) {
    total_0_ptr_2[0] = shared_0_ptr[((int)threadIdx.x)];
  }
  other_ptr_2[0] = __shfl_down_sync((uint)4294967295, total_0_ptr_2[0], 2, 32);
  total_0_ptr_2[0] = (total_0_ptr_2[0] + other_ptr_2[0]);
  other_ptr_2[0] = __shfl_down_sync((uint)4294967295, total_0_ptr_2[0], 1, 32);
  total_0_ptr_2[0] = (total_0_ptr_2[0] + other_ptr_2[0]);
  if (((int)threadIdx.x) == 0) {
    row_2_ptr[0] = total_0_ptr_2[0];
  }
  __syncthreads();
  int again_3 = 0;
  if (((int)threadIdx.x) < 1) {
    value_0_ptr[0] = ((row_2_ptr[0] * -0x1p+0f/*-1.000000e+00*/) / row_1_ptr[0]);
    row_3_ptr[0] = value_0_ptr[0];
  }
  __syncthreads();
  int again_4 = 0;
  if (((int)threadIdx.x) < 70) {
    value_0_ptr_1[0] = (((p1_ptr[((((int)blockIdx.x) * 70) + ((int)threadIdx.x))] / row_1_ptr[0]) + row_3_ptr[0]) * row_4_ptr[((int)threadIdx.x)]);
    r1_ptr[((((int)blockIdx.x) * 70) + ((int)threadIdx.x))] = value_0_ptr_1[0];
  }
}
