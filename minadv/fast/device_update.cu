struct Table {
    T* grads[LEAVES]; T* params[LEAVES]; T* fresh[LEAVES];
    T* one[LEAVES]; T* new_one[LEAVES]; T* other[LEAVES]; T* new_other[LEAVES];
    long long sizes[LEAVES];
    int blocks[LEAVES], clipped[LEAVES];
};

__device__ bool is_number(T x) { return x - x == 0; }

__device__ int leaf_of(const Table& t, long long& first, long long& last) {
    int leaf = 0;
    while (blockIdx.x >= t.blocks[leaf]) ++leaf;
    first = (long long)CHUNK * (blockIdx.x - (leaf ? t.blocks[leaf - 1] : 0));
    last = first + CHUNK < t.sizes[leaf] ? first + CHUNK : t.sizes[leaf];
    return leaf;
}

__device__ double total(double value, double* shared) {
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
        __syncthreads();
    }
    return shared[0];
}

extern "C" __global__ void minadv_squares(const Table t, double* squares, int* wrong) {
    __shared__ double shared[THREADS];
    long long first, last;
    const int leaf = leaf_of(t, first, last);
    double sum = 0;
    for (long long i = first + threadIdx.x; i < last; i += THREADS) {
        const T g = t.grads[leaf][i];
        if (!is_number(g)) wrong[0] = 1;
        sum += (double)g * (double)g;
    }
    sum = total(t.clipped[leaf] ? sum : 0.0, shared);
    if (threadIdx.x == 0) squares[blockIdx.x] = sum;
}

extern "C" __global__ void minadv_scale(const double* squares, int n, double limit, double* scale, int* wrong) {
    __shared__ double shared[THREADS];
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += THREADS) sum += squares[i];
    const double norm = sqrt(total(sum, shared));
    if (threadIdx.x == 0) {
        if (!(norm - norm == 0)) wrong[0] = 1;
        scale[0] = limit / (norm > limit ? norm : limit);
    }
}

// a to f are numbers of the optimizer: the comment of each kind says which
extern "C" __global__ void minadv_update(const Table t, const double* scale, int how, double limit, int kind,
                                         double rate, double a, double b, double c, double d, double e, double f,
                                         int* wrong) {
    long long first, last;
    const int leaf = leaf_of(t, first, last);
    const T factor = how == 1 ? (T)scale[0] : (T)1, most = (T)limit, lr = (T)rate;
    bool sound = true;
    for (long long i = first + threadIdx.x; i < last; i += THREADS) {
        T g = t.grads[leaf][i];
        const T p = t.params[leaf][i];
        if (t.clipped[leaf]) g = how == 1 ? g * factor : g > most ? most : g < -most ? -most : g;
        T moved;
        if (kind == 0) {  // SGD: weight decay a, momentum b
            T v = a != 0 ? g + (T)a * p : g;
            if (b != 0) {
                v = (T)b * t.one[leaf][i] + v;
                t.new_one[leaf][i] = v;
                sound = sound && is_number(v);
            }
            moved = p - lr * v;
        } else if (kind == 1) {  // RMSProp: decay a, 1 - decay b, tiny c
            const T s = (T)a * t.one[leaf][i] + (T)b * (g * g);
            t.new_one[leaf][i] = s;
            moved = p - lr * g / sqrt(s + (T)c);
            sound = sound && is_number(s);
        } else if (kind == 2) {  // Adam: beta1 a, 1 - beta1 b, beta2 c, 1 - beta2 d, bias of the root e, tiny f
            const T m = (T)a * t.one[leaf][i] + (T)b * g, s = (T)c * t.other[leaf][i] + (T)d * (g * g);
            t.new_one[leaf][i] = m;
            t.new_other[leaf][i] = s;
            moved = p - lr * m / (sqrt(s) / (T)e + (T)f);
            sound = sound && is_number(m) && is_number(s);
        } else {  // ASGD: weight decay a, the share of the new weights in the average b, 0 before it has started
            moved = p - lr * (a != 0 ? g + (T)a * p : g);
            if (b != 0) {
                const T average = t.one[leaf][i] + (T)b * (moved - t.one[leaf][i]);
                t.new_one[leaf][i] = average;
                sound = sound && is_number(average);
            }
        }
        t.fresh[leaf][i] = moved;
        sound = sound && is_number(moved);
    }
    if (!sound) wrong[0] = 1;
}
