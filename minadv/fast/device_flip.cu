// A block takes an example: every unit is ranked by its gain, ties by lowest index, and the first thread then walks along
// the ranks. `rule` is STRICT, PAPER or AUTHORS. `limit` is how far from eps0 a walk may lead, for AUTHORS the rank of the
// threshold. `unflip`: STRICT may flip units back to eps0. `reactivate`: AUTHORS may flip dropped units as well.
extern "C" __global__ void __launch_bounds__(THREADS) minadv_flip(
    const T* eps, const T* im, const T* eps0, T* out, int* wrong, int H, int rule, long long limit, int unflip,
    int reactivate) {
    __shared__ T gains[UNITS];
    __shared__ short unit_at[UNITS];                  // by rank
    __shared__ signed char steps[UNITS];              // by rank: 1 leads away from eps0, -1 back to it, 0 is never made
    __shared__ bool flips[UNITS];
    const long long first = (long long)blockIdx.x * H;
    eps += first; im += first; eps0 += first; out += first;
    for (int i = threadIdx.x; i < H; i += blockDim.x) {
        const T e = eps[i], e0 = eps0[i], map = im[i];
        if ((e != 0 && e != 1) || (e0 != 0 && e0 != 1) || map != map) wrong[0] = 1;
        T gain = (1 - 2 * e) * map;
        if (rule == AUTHORS) {
            const bool candidate = (e == 1 && map <= 0) || (reactivate && e == 0 && map > 0);
            gain = candidate ? (map < 0 ? -map : map) : T(0);
        }
        gains[i] = gain == gain ? gain : T(0);        // NaN, which is raised later, has no rank of its own
    }
    __syncthreads();
    for (int i = threadIdx.x; i < H; i += blockDim.x) {
        const T gain = gains[i];
        int rank = 0, as_large = 0;
        for (int j = 0; j < H; ++j) {
            rank += gains[j] > gain || (gains[j] == gain && j < i);
            as_large += gains[j] >= gain;
        }
        int step = eps[i] == eps0[i] ? 1 : -1;
        if (rule == STRICT && (!(gain > 0) || (step < 0 && !unflip))) step = 0;
        steps[rank] = step;
        unit_at[rank] = i;
        flips[i] = rule == AUTHORS && gain > 0 && as_large < limit;
    }
    __syncthreads();
    if (threadIdx.x == 0 && rule != AUTHORS) {
        long long away = 0;                           // units in which the mask differs from eps0
        for (int j = 0; j < H; ++j) away += eps[j] != eps0[j];
        if (rule == STRICT && away > limit) wrong[0] = 1;
        for (int n = 0; n < H; ++n) {
            const int step = steps[n];
            const bool may = rule == STRICT ? step < 0 || (step > 0 && away < limit) : away <= limit;
            if (!may && rule == PAPER) break;
            if (may) {
                flips[unit_at[n]] = true;
                away += step;
            }
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < H; i += blockDim.x) out[i] = flips[i] ? 1 - eps[i] : eps[i];
}

extern "C" __global__ void minadv_one_flip(const T* eps0, const long long* units, T* out, int* wrong, int H,
                                           long long count) {
    const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= count) return;
    const T e = eps0[at];
    if (e != 0 && e != 1) wrong[0] = 1;
    out[at] = at % H == units[at / H] ? 1 - e : e;
}

// Whether two passes agree up to rounding, a block an example: by their distance d, and by their features f0 and f1
// (N, B, F), whose largest difference is compared with the largest feature of the first pass; and d, zero where they do.
extern "C" __global__ void minadv_agree(const T* f0, const T* f1, const D* d, bool* same, D* out, int N, int B, int F,
                                        T rounding) {
    __shared__ T apart[128], size[128];
    const int b = blockIdx.x, i = threadIdx.x;
    T a = 0, s = 0;
    for (long long k = i; k < (long long)N * F; k += blockDim.x) {
        const long long at = (k / F * B + b) * F + k % F;
        const T x = f0[at], difference = f1[at] - x, y = difference < 0 ? -difference : difference;
        const T z = x < 0 ? -x : x;
        a = y > a || y != y ? y : a;  // a NaN stays
        s = z > s || z != z ? z : s;
    }
    apart[i] = a;
    size[i] = s;
    __syncthreads();
    if (i == 0) {
        for (int j = 1; j < blockDim.x; ++j) {
            a = apart[j] > a || apart[j] != apart[j] ? apart[j] : a;
            s = size[j] > s || size[j] != size[j] ? size[j] : s;
        }
        same[b] = d[b] <= (D)((double)rounding * (double)rounding) && a <= rounding * s;
        out[b] = same[b] ? D(0) : d[b];
    }
}

extern "C" __global__ void minadv_zero_map(const T* im, const bool* same, T* out, bool* influence, int H,
                                           long long count) {
    const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= count) return;
    const T value = same[at / H] ? T(0) : im[at];
    out[at] = value;
    if (value != 0) influence[at / H] = true;
}
