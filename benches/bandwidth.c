// Memory read speed of this machine, one sequential stream a thread, in huge pages where the
// kernel gives them. compare.py brackets each block of runs with it: when the two figures
// differ, the machine was not quiet and the block's ratios deserve doubt.
//
//   bandwidth THREADS MEGABYTES REPEATS      prints the best GB/s of REPEATS passes

#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

typedef struct {
    const uint64_t *data;
    size_t words;
    int repeats;
    pthread_barrier_t *barrier;
    double *seconds; // per pass, written by the first thread
    int first;
    uint64_t sum;
} reader;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *read_all(void *argument) {
    reader *r = argument;
    for (int pass = 0; pass < r->repeats; pass++) {
        pthread_barrier_wait(r->barrier);
        double start = now();
        uint64_t a = 0, b = 0, c = 0, d = 0;
        for (size_t i = 0; i + 32 <= r->words; i += 32) {
            for (size_t j = 0; j < 8; j++) {
                a += r->data[i + j];
                b += r->data[i + 8 + j];
                c += r->data[i + 16 + j];
                d += r->data[i + 24 + j];
            }
        }
        r->sum += a + b + c + d;
        pthread_barrier_wait(r->barrier);
        if (r->first) r->seconds[pass] = now() - start;
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: bandwidth THREADS MEGABYTES REPEATS\n");
        return 2;
    }
    int threads = atoi(argv[1]), repeats = atoi(argv[3]);
    size_t bytes = (size_t)atol(argv[2]) * 1000000u;
    if (threads < 1 || threads > 256 || repeats < 1 || bytes == 0) return 2;
    size_t share = bytes / (size_t)threads / 256 * 256;
    uint8_t *data = mmap(NULL, bytes + (2u << 20), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return 1;
    data = (uint8_t *)(((uintptr_t)data + (2u << 20) - 1) / (2u << 20) * (2u << 20));
    madvise(data, bytes, MADV_HUGEPAGE);
    for (size_t i = 0; i < bytes; i += 64) data[i] = (uint8_t)i;

    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    double *seconds = calloc((size_t)repeats, sizeof *seconds);
    reader *readers = calloc((size_t)threads, sizeof *readers);
    pthread_t *handles = calloc((size_t)threads, sizeof *handles);
    if (!seconds || !readers || !handles) return 1;
    uint64_t sum = 0;
    for (int t = 0; t < threads; t++) {
        readers[t] = (reader){(const uint64_t *)(data + share * (size_t)t), share / 8, repeats, &barrier, seconds, t == 0, 0};
        if (pthread_create(&handles[t], NULL, read_all, &readers[t]) != 0) return 1;
    }
    for (int t = 0; t < threads; t++) {
        pthread_join(handles[t], NULL);
        sum += readers[t].sum;
    }
    double best = seconds[0];
    for (int pass = 1; pass < repeats; pass++) {
        if (seconds[pass] < best) best = seconds[pass];
    }
    printf("%.2f\n", (double)share * threads / best * 1e-9);
    return sum == 1; // keeps the sums alive
}
