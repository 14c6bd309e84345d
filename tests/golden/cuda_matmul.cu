extern "C" __global__ void __launch_bounds__(256) main_kernel(float* __restrict__ C_out_ptr, float* __restrict__ p_A_ptr, float* __restrict__ p_B_ptr);
extern "C" __global__ void __launch_bounds__(256) main_kernel(float* __restrict__ C_out_ptr, float* __restrict__ p_A_ptr, float* __restrict__ p_B_ptr) {
  alignas(64) float C_tile_local_ptr[1];
  __shared__ alignas(64) float C_left_shared_ptr[576];
  __shared__ alignas(64) float C_right_shared_ptr[576];
  alignas(64) float C_left_local_ptr[1];
  alignas(64) float C_right_local_ptr[1];
  #pragma unroll
  for (int var = 0; var < 1; ++var) {
    C_tile_local_ptr[0] = 0x0p+0f/*0.000000e+00*/;
    int cse_v2 = (((int)blockIdx.x) / 7);
    int cse_v4 = (((int)blockIdx.x) % 7);
    int cse_v8 = ((((int)blockIdx.x) % 7) * 16);
    int cse_v9 = (((((int)blockIdx.x) / 7) * 16) + ((int)threadIdx.y));
    #pragma unroll
    for (int k_0 = 0; k_0 < 7; ++k_0) {
      int cse_v1 = (k_0 * 16);
      int cse_v3 = (((int)threadIdx.y) * 103);
      int cse_v6 = ((k_0 * 16) + ((int)threadIdx.x));
      int cse_v7 = ((((int)threadIdx.x) * 36) + ((int)threadIdx.y));
      __syncthreads();
      float condval;
      if ((((k_0 * 16) + ((int)threadIdx.x)) < 103) && ((((((int)blockIdx.x) / 7) * 16) + ((int)threadIdx.y)) < 97)) {
        condval = p_A_ptr[(((((((int)blockIdx.x) / 7) * 1648) + (((int)threadIdx.y) * 103)) + (k_0 * 16)) + ((int)threadIdx.x))];
      } else {
        condval = 0x0p+0f/*0.000000e+00*/;
      }
      C_left_shared_ptr[((((int)threadIdx.x) * 36) + ((int)threadIdx.y))] = condval;
      float condval_1;
      if ((((k_0 * 16) + ((int)threadIdx.x)) < 103) && ((((((int)blockIdx.x) % 7) * 16) + ((int)threadIdx.y)) < 101)) {
        condval_1 = p_B_ptr[(((((((int)blockIdx.x) % 7) * 1648) + (((int)threadIdx.y) * 103)) + (k_0 * 16)) + ((int)threadIdx.x))];
      } else {
        condval_1 = 0x0p+0f/*0.000000e+00*/;
      }
      C_right_shared_ptr[((((int)threadIdx.x) * 36) + ((int)threadIdx.y))] = condval_1;
      __syncthreads();
      #pragma unroll
      for (int k_1 = 0; k_1 < 16; ++k_1) {
        int cse_v5 = (k_1 * 36);
        C_left_local_ptr[0] = C_left_shared_ptr[((k_1 * 36) + ((int)threadIdx.y))];
        C_right_local_ptr[0] = C_right_shared_ptr[((k_1 * 36) + ((int)threadIdx.x))];
        C_tile_local_ptr[0] = (C_tile_local_ptr[0] + (C_left_local_ptr[0] * C_right_local_ptr[0]));
      }
    }
    if (((((((int)blockIdx.x) / 7) * 16) + ((int)threadIdx.y)) < 97) && ((((((int)blockIdx.x) % 7) * 16) + ((int)threadIdx.x)) < 101)) {
      C_out_ptr[(((((((int)blockIdx.x) / 7) * 1616) + (((int)threadIdx.y) * 101)) + ((((int)blockIdx.x) % 7) * 16)) + ((int)threadIdx.x))] = C_tile_local_ptr[0];
    }
  }
}
