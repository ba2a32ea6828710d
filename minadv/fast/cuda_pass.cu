// A whole pass over T steps in one launch, in single precision; below `cuda_cells.cu`. Examples do not depend on each
// other: a block takes one example (blockIdx.x) of one pass (blockIdx.y), keeps all of U in its registers (what does not
// fit there, in shared memory) and loops over time by itself. H is a macro here.
//
// A block has 4 H threads. Forward, thread 4 unit + lane takes every fourth k of a unit's products, for all gates (one read
// of the state serves them all), and a transposing sum over the four leaves gate `lane` with its lane. Backward, 16 threads
// take four units: each of them every sixteenth of the G H gradients, for all four units.
// H need not be a multiple of 4: units and weights past the end are zero. Places in the arrays of one pass have 32 bits,
// which saves registers; `minadv.fast.cuda_source.fits_one_launch` sees to it that they suffice.

#define Q ((H + 3) / 4)                          // groups of four units, and of four k
#define THREADS ((16 * Q + 31) / 32 * 32)
#define N ((G * H + 15) / 16)                    // sixteens of gradients
#define FORWARD_REGISTERS (Q < MOST_QUADRUPLES ? Q : MOST_QUADRUPLES)    // of the Q weights a gate that a thread has
#define BACKWARD_REGISTERS (N < MOST_QUADRUPLES ? N : MOST_QUADRUPLES)   // of the N weights a unit that a thread has
#define ALL 0xffffffffu

// What a launch asks for, as `minadv.fast.cuda_source.pass_size` reckons it, is what the kernels use.
static_assert(BLOCK_THREADS == THREADS && THREADS <= MOST_THREADS, "threads of a block");
static_assert(FORWARD_BYTES == sizeof(float) * (Q - FORWARD_REGISTERS) * G * THREADS, "shared memory forward");
static_assert(BACKWARD_BYTES == sizeof(float) * (N - BACKWARD_REGISTERS) * 4 * THREADS, "shared memory backward");

// Four sums over the lanes of a quad, p[g] of every lane; lane g is left with the g-th.
__device__ __forceinline__ float quad_sum(float p0, float p1, float p2, float p3, int lane) {
    const bool odd = lane & 1, high = lane & 2;
    float first = odd ? p1 : p0, second = odd ? p3 : p2;
    first += __shfl_xor_sync(ALL, odd ? p0 : p1, 1);
    second += __shfl_xor_sync(ALL, odd ? p2 : p3, 1);
    return (high ? second : first) + __shfl_xor_sync(ALL, high ? first : second, 2);
}

extern "C" __global__ void __launch_bounds__(MOST_THREADS, 1) forward_pass(
    const float* __restrict__ U,                 // (H, G H)
    const float* __restrict__ W,                 // (I, G H), I <= MOST_INPUTS; null where x W is given
    const float* __restrict__ b,                 // (G H,)
    const float* __restrict__ bn,                // (H,), of the GRU
    const Passes passes, const int T, const int B, const int I) {
    __shared__ float hhat[2][4 * Q];             // the masked state that enters a step, and that which enters the next
    extern __shared__ float beside[];            // (Q - FORWARD_REGISTERS, G, THREADS)
    const int unit = threadIdx.x >> 2, lane = threadIdx.x & 3, row = blockIdx.x;
    const bool live = unit < H;
    const int n = live ? unit : 0;               // threads past the end compute with unit 0 and store nothing
    const int column = (lane < G ? lane : 0) * H + n;
    const Pass* mine = &passes.of[blockIdx.y];
    const float* x = mine->x; const bool* valid = mine->valid;
    float *a = mine->a, *c = mine->c, *h = mine->h;
    float u[FORWARD_REGISTERS][G];
    #pragma unroll
    for (int i = 0; i < FORWARD_REGISTERS; i++)
        #pragma unroll
        for (int g = 0; g < G; g++) u[i][g] = 4 * i + lane < H ? U[(4 * i + lane) * G * H + g * H + n] : 0;
    for (int i = FORWARD_REGISTERS; i < Q; i++)
        for (int g = 0; g < G; g++)
            beside[((i - FORWARD_REGISTERS) * G + g) * THREADS + threadIdx.x] =
                4 * i + lane < H ? U[(4 * i + lane) * G * H + g * H + n] : 0;
    float w[MOST_INPUTS];
    #pragma unroll
    for (int i = 0; i < MOST_INPUTS; i++) w[i] = W && i < I ? W[i * G * H + column] : 0;
    const float bias = b[column], bias_q = GRU ? bn[n] : 0, mask = mine->m ? mine->m[row * H + n] : 1;
    float h_t = mine->h0 ? mine->h0[row * H + n] : 0, c_t = LSTM && mine->c0 ? mine->c0[row * H + n] : 0;
    if (lane == 0 && unit < 4 * Q) hhat[0][unit] = hhat[1][unit] = live ? h_t * mask : 0;
    if (live && lane == 2) h[row * H + unit] = h_t;
    if (LSTM && live && lane == 1) c[row * H + unit] = c_t;
    __syncthreads();

    int side = 0;                                // changes with every step that is made, not with t, which skips padding
    for (int t = 0; t < T; t++) {
        const unsigned at = t * B + row;
        if (!valid || valid[at]) {               // the same for the whole block
            float share = bias;                  // the input's: asked for early, used late
            if (W) {
                #pragma unroll
                for (int i = 0; i < MOST_INPUTS; i++) if (i < I) share += x[at * I + i] * w[i];
            } else share += x[at * G * H + column];
            float p[4] = {0, 0, 0, 0};
            #pragma unroll
            for (int i = 0; i < FORWARD_REGISTERS; i++) {
                const float v = hhat[side][4 * i + lane];
                #pragma unroll
                for (int g = 0; g < G; g++) p[g] += u[i][g] * v;
            }
            for (int i = FORWARD_REGISTERS; i < Q; i++) {
                const float v = hhat[side][4 * i + lane];
                #pragma unroll
                for (int g = 0; g < G; g++)
                    p[g] += beside[((i - FORWARD_REGISTERS) * G + g) * THREADS + threadIdx.x] * v;
            }
            const float sum = quad_sum(p[0], p[1], p[2], p[3], lane);
#if LSTM
            const float kept = lane == 2 ? tanhf(share + sum) : logistic(share + sum);
            const float i = __shfl_sync(ALL, kept, 0, 4), f = __shfl_sync(ALL, kept, 1, 4);
            const float g = __shfl_sync(ALL, kept, 2, 4), o = __shfl_sync(ALL, kept, 3, 4);
            c_t = f * c_t + i * g;               // Eq. 1
            h_t = o * tanhf(c_t);                // Eq. 1
#elif GRU
            const float rzq = lane < 2 ? logistic(share + sum) : sum + bias_q;
            const float r = __shfl_sync(ALL, rzq, 0, 4), z = __shfl_sync(ALL, rzq, 1, 4), q = __shfl_sync(ALL, rzq, 2, 4);
            const float candidate = __shfl_sync(ALL, tanhf(share + r * q), 2, 4);
            h_t = (1 - z) * candidate + z * (MASKED_LEAK ? h_t * mask : h_t);    // Eq. 1
            const float kept = lane < 2 ? rzq : lane == 2 ? candidate : q;
#else
            h_t = tanhf(share + __shfl_sync(ALL, sum, 0, 4));    // Eq. 1
            const float kept = 0;
#endif
            side ^= 1;
            if (live && lane == 0) hhat[side][unit] = h_t * mask;
            if (KEPT && live) a[(at * KEPT + lane) * H + unit] = kept;
            __syncthreads();
        }
        if (LSTM && live && lane == 1) c[(at + B) * H + unit] = c_t;
        if (live && lane == 2) h[(at + B) * H + unit] = h_t;
    }
    if (live && lane == 0) mine->h_last[row * H + unit] = h_t;
    if (LSTM && live && lane == 1) mine->c_last[row * H + unit] = c_t;
}

extern "C" __global__ void __launch_bounds__(MOST_THREADS, 1) backward_pass(
    const float* __restrict__ U,                 // (H, G H)
    const Passes passes,
    float* __restrict__ dz_out,                  // (passes, T, B, DZ H) or null
    float* __restrict__ entered,                 // (passes, T, B, H+1+I) or null: the masked state, 1 and x of each step
    const int T, const int B, const int I) {
    __shared__ float dz[2][16 * N];              // the gradients of a step, and those of the step before
    extern __shared__ float beside[];            // (N - BACKWARD_REGISTERS, 4, THREADS)
    const int group = threadIdx.x >> 4, q = threadIdx.x & 15, sub = q & 3, gate = q >> 2, row = blockIdx.x;
    const int unit = 4 * group + sub;            // 16 threads: 4 units, 4 gates
    const bool live = unit < H;
    const int n = live ? unit : 0;
    const Pass* mine = &passes.of[blockIdx.y];
    const bool* valid = mine->valid;
    const float *a = mine->a, *c = mine->c, *h = mine->h, *dh_out = mine->dh;
    float u[BACKWARD_REGISTERS][4];              // of gradient 16 i + q and the four units
    #pragma unroll
    for (int i = 0; i < BACKWARD_REGISTERS; i++)
        #pragma unroll
        for (int k = 0; k < 4; k++)
            u[i][k] = 16 * i + q < G * H && 4 * group + k < H ? U[(4 * group + k) * G * H + 16 * i + q] : 0;
    for (int i = BACKWARD_REGISTERS; i < N; i++)
        for (int k = 0; k < 4; k++)
            beside[((i - BACKWARD_REGISTERS) * 4 + k) * THREADS + threadIdx.x] =
                16 * i + q < G * H && 4 * group + k < H ? U[(4 * group + k) * G * H + 16 * i + q] : 0;
    if (threadIdx.x < 16 * N - G * H) dz[0][G * H + threadIdx.x] = dz[1][G * H + threadIdx.x] = 0;
    const float mask = mine->m ? mine->m[row * H + n] : 1;
    float dh = mine->dh_last ? mine->dh_last[row * H + n] : 0, dc = LSTM && mine->dc_last ? mine->dc_last[row * H + n] : 0;
    float map = 0;
    int side = 0;                                // changes with every step that is made, not with t, which skips padding
    // What step t needs is asked for a step ahead, so that memory answers while the products are made.
    const unsigned end = (T - 1) * B + row;
    float kept = KEPT ? a[(end * KEPT + gate) * H + n] : 0, more = dh_out ? dh_out[end * H + n] : 0;
    float h_t = h[(end + B) * H + n], h_prev = h[end * H + n];
    float c_t = LSTM ? c[(end + B) * H + n] : 0, c_prev = LSTM ? c[end * H + n] : 0;

    for (int t = T - 1; t >= 0; t--) {
        const unsigned at = t * B + row, before = t ? at - B : at;
        const size_t out = (size_t)blockIdx.y * T * B + at;
        const float kept_next = KEPT ? a[(before * KEPT + gate) * H + n] : 0;
        const float more_next = dh_out ? dh_out[before * H + n] : 0;
        const float h_next = h[before * H + n], c_next = LSTM ? c[before * H + n] : 0;
        if (entered) {
            if (live && gate == 0) entered[out * (H + 1 + I) + unit] = h_prev * mask;
            for (int i = threadIdx.x; i <= I; i += THREADS)
                entered[out * (H + 1 + I) + H + i] = i ? mine->x[at * I + i - 1] : 1;
        }
        dh += more;
        float d[4] = {0, 0, 0, 0};
        if (!valid || valid[at]) {               // the same for the whole block
            float gates[4];
            #pragma unroll
            for (int g = 0; g < KEPT; g++) gates[g] = __shfl_sync(ALL, kept, 4 * g + sub, 16);
            const float h_leak = MASKED_LEAK ? h_prev * mask : h_prev;
            const float dleak = unit_backward(gates, h_t, c_t, c_prev, h_leak, dh, dc, d);
            const float own = gate == 0 ? d[0] : gate == 1 ? d[1] : gate == 2 ? d[2] : d[3];
            if (live && gate < G) dz[side][gate * H + unit] = own;
            if (dz_out && live && gate < DZ) dz_out[(out * DZ + gate) * H + unit] = own;
            __syncthreads();
            float p[4] = {0, 0, 0, 0};
            #pragma unroll
            for (int i = 0; i < BACKWARD_REGISTERS; i++) {
                const float v = dz[side][16 * i + q];
                #pragma unroll
                for (int k = 0; k < 4; k++) p[k] += u[i][k] * v;
            }
            for (int i = BACKWARD_REGISTERS; i < N; i++) {
                const float v = dz[side][16 * i + q];
                #pragma unroll
                for (int k = 0; k < 4; k++)
                    p[k] += beside[((i - BACKWARD_REGISTERS) * 4 + k) * THREADS + threadIdx.x] * v;
            }
            side ^= 1;
            float dhhat = quad_sum(p[0], p[1], p[2], p[3], sub);    // over four threads, then over the four fours
            dhhat += __shfl_xor_sync(ALL, dhhat, 4);
            dhhat += __shfl_xor_sync(ALL, dhhat, 8);
            if (MASKED_LEAK) dhhat += dleak;
            map += dhhat * h_prev;               // Eq. 6
            dh = dhhat * mask + (MASKED_LEAK ? 0 : dleak);
        } else if (dz_out && live && gate < DZ) dz_out[(out * DZ + gate) * H + unit] = 0;
        kept = kept_next; more = more_next;
        h_t = h_prev; h_prev = h_next; c_t = c_prev; c_prev = c_next;
    }
    if (live && gate == 0) {
        mine->dh0[row * H + unit] = dh;
        if (LSTM) mine->dc0[row * H + unit] = dc;
        if (mine->dm) mine->dm[row * H + unit] = map;
    }
}
