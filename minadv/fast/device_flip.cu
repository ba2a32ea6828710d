// A thread ranks its unit by its gain, ties by lowest index; the first thread then walks along the ranks.
extern "C" __global__ void minadv_flip(const T* eps, const T* im, const T* eps0, T* out, int* wrong, int H, int rule,
                                       long long limit, int unflip, int reactivate) {
    __shared__ T gains[1024];
    __shared__ signed char steps[1024], flips[1024];
    __shared__ short unit_at[1024];
    const int i = threadIdx.x, row = blockIdx.x;
    T e = 0, e0 = 0, gain = 0;
    bool candidate = false;
    if (i < H) {
        const long long at = (long long)row * H + i;
        const T map = im[at];
        e = eps[at];
        e0 = eps0[at];
        if ((e != 0 && e != 1) || (e0 != 0 && e0 != 1) || map != map) wrong[0] = 1;
        gain = (1 - 2 * e) * map;
        if (rule == 2) {
            candidate = (e == 1 && map <= 0) || (reactivate && e == 0 && map > 0);
            gain = candidate ? (map < 0 ? -map : map) : T(0);
        }
        gains[i] = gain;
    }
    __syncthreads();
    if (i < H) {
        int rank = 0, as_large = 0;
        for (int j = 0; j < H; ++j) {
            rank += gains[j] > gain || (gains[j] == gain && j < i);
            as_large += gains[j] >= gain;
        }
        rank = rank < H ? rank : H - 1;  // of a map with NaN, which is an error
        int step = e == e0 ? 1 : -1;
        if (rule == 0) step = gain > 0 ? (unflip || step > 0 ? step : 0) : 0;
        steps[rank] = step;
        unit_at[rank] = i;
        flips[i] = rule == 2 && candidate && gain > 0 && as_large < limit;
    }
    __syncthreads();
    if (i == 0 && rule != 2) {
        long long away = 0;
        for (int j = 0; j < H; ++j) away += eps[(long long)row * H + j] != eps0[(long long)row * H + j];
        if (rule == 0 && away > limit) wrong[0] = 1;
        for (int n = 0; n < H; ++n) {
            const int step = steps[n];
            const bool may = rule == 0 ? step < 0 || (step > 0 && away < limit) : away <= limit;
            if (!may && rule == 1) break;
            if (may) {
                flips[unit_at[n]] = 1;
                away += step;
            }
        }
    }
    __syncthreads();
    if (i < H) out[(long long)row * H + i] = flips[i] ? 1 - e : e;
}

extern "C" __global__ void minadv_one_flip(const T* eps0, const long long* units, T* out, int* wrong, int H,
                                           long long count) {
    const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= count) return;
    const T e = eps0[at];
    if (e != 0 && e != 1) wrong[0] = 1;
    out[at] = at % H == units[at / H] ? 1 - e : e;
}

// The largest difference of two passes' features, and the largest feature of the first, of one example.
extern "C" __global__ void minadv_agree(const T* f0, const T* f1, const D* d, bool* out, int N, int B, int F,
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
        out[b] = d[b] <= (D)((double)rounding * (double)rounding) && a <= rounding * s;
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
