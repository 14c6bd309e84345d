extern "C" __global__ void __launch_bounds__(256) main_kernel(float* __restrict__ p0_ptr, float* __restrict__ p1_ptr, float* __restrict__ p2_ptr);
extern "C" __global__ void __launch_bounds__(256) main_kernel(float* __restrict__ p0_ptr, float* __restrict__ p1_ptr, float* __restrict__ p2_ptr) {
  __shared__ alignas(64) float left_ptr[316];
  __shared__ alignas(64) float right_ptr[316];
  alignas(64) float acc0_ptr[1];
  alignas(64) float lefts_ptr[1];
  alignas(64) float rights_ptr[1];
  for (int var = 0; var < 1; ++var) {
    int cse_v1 = (((int)blockIdx.x) % 7);
    int column = (((int)blockIdx.x) % 7);
    int cse_v2 = (((int)blockIdx.x) / 7);
    int row = (((int)blockIdx.x) / 7);
    int batch = 0;
    int i = 0;
    int j = 0;
    acc0_ptr[0] = 0x0p+0f/*0.000000e+00*/;
    int cse_v8 = ((((int)blockIdx.x) % 7) * 16);
    int cse_v9 = (((((int)blockIdx.x) / 7) * 16) + ((int)threadIdx.y));
    for (int step = 0; step < 7; ++step) {
      __syncthreads();
      int again = 0;
      int cse_v3 = (step * 16);
      int cse_v4 = (((int)threadIdx.y) * 103);
      int cse_v6 = ((step * 16) + ((int)threadIdx.x));
      int cse_v7 = ((((int)threadIdx.x) * 20) + ((int)threadIdx.y));
      float condval;
      if ((((step * 16) + ((int)threadIdx.x)) < 103) && ((((((int)blockIdx.x) / 7) * 16) + ((int)threadIdx.y)) < 97)) {
        condval = p0_ptr[(((((((int)blockIdx.x) / 7) * 1648) + (((int)threadIdx.y) * 103)) + (step * 16)) + ((int)threadIdx.x))];
      } else {
        condval = 0x0p+0f/*0.000000e+00*/;
      }
      left_ptr[((((int)threadIdx.x) * 20) + ((int)threadIdx.y))] = condval;
      int again_1 = 0;
      float condval_1;
      if ((((step * 16) + ((int)threadIdx.x)) < 103) && ((((((int)blockIdx.x) % 7) * 16) + ((int)threadIdx.y)) < 101)) {
        condval_1 = p1_ptr[(((((((int)blockIdx.x) % 7) * 1648) + (((int)threadIdx.y) * 103)) + (step * 16)) + ((int)threadIdx.x))];
      } else {
        condval_1 = 0x0p+0f/*0.000000e+00*/;
      }
      right_ptr[((((int)threadIdx.x) * 20) + ((int)threadIdx.y))] = condval_1;
      __syncthreads();
      #pragma unroll
      for (int k = 0; k < 16; ++k) {
        int number = 0;
        int lane = 0;
        int cse_v5 = (k * 20);
        lefts_ptr[0] = left_ptr[((k * 20) + ((int)threadIdx.y))];
        int number_1 = 0;
        int lane_1 = 0;
        rights_ptr[0] = right_ptr[((k * 20) + ((int)threadIdx.x))];
        int i_1 = 0;
        int j_1 = 0;
        acc0_ptr[0] = (acc0_ptr[0] + (lefts_ptr[0] * rights_ptr[0]));
      }
    }
    int i_2 = 0;
    int j_2 = 0;
    if (((((((int)blockIdx.x) / 7) * 16) + ((int)threadIdx.y)) < 97) && ((((((int)blockIdx.x) % 7) * 16) + ((int)threadIdx.x)) < 101)) {
      p2_ptr[(((((((int)blockIdx.x) / 7) * 1616) + (((int)threadIdx.y) * 101)) + ((((int)blockIdx.x) % 7) * 16)) + ((int)threadIdx.x))] = acc0_ptr[0];
    }
  }
}
