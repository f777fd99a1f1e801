/* Random interleavings of load, generate, read, cancel and close, by many threads that share what they have made.
 *
 *     interleavings BUNDLE [ROUNDS [SEED [THREADS]]]
 *
 * A round is one life of a model: threads draw operations on the same model, sessions and requests, and any of them may close any of these
 * under the others. What has to hold however they meet: nothing hangs or crashes; each request that is read to its end has exactly one last
 * event and nothing after it; a callback is never called after its request was closed; and what was closed gives the code of handles. The seed is printed first, so
 * that draws can be repeated; how threads meet cannot.
 *
 * sdks/conformance/interleavings.sh builds it, with ThreadSanitizer where asked for. */
#include <cactus.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define REQUESTS 6
#define SESSIONS 2
#define STEPS 12
#define MOST_THREADS 16

#define CHECK(condition)                                                                                                                   \
    do {                                                                                                                                   \
        if (!(condition)) {                                                                                                                \
            cactus_error error;                                                                                                            \
            cactus_last_error(&error);                                                                                                     \
            fprintf(stderr, "%s:%d: seed %llu, round %ld: %s (last error: %d %s)\n", __FILE__, __LINE__, (unsigned long long)seed, current, \
                    #condition, error.code, error.message);                                                                                \
            abort();                                                                                                                       \
        }                                                                                                                                  \
    } while (0)

/* A request with what its callback has heard, or one that is polled. */
struct slot {
    /* Of both together. No call of the library is made under it. */
    pthread_mutex_t mutex;
    cactus_request *request;
    struct heard *heard;
    /* Whether one thread polls it: events of two threads come in no order. */
    atomic_flag polled;
    /* For that thread: the request that was read last, and how many last events it has given so far. */
    cactus_request *read;
    int ends;
};

/* What a callback has heard. It lives until the end of its round, so that a call that comes late is noticed. */
struct heard {
    atomic_int ends, after_end, after_close;
    atomic_bool closed;
    struct heard *next;
};

static uint64_t seed;
static long current;
static const char *bundle;
static _Atomic(cactus_model *) model;
static _Atomic(cactus_session *) sessions[SESSIONS];
static struct slot slots[REQUESTS];
static _Atomic(struct heard *) closed_ones;
static atomic_long started, ended, cancelled, refused, polled_ends, heard_ends, model_closes;

static uint64_t next_random(uint64_t *state) {
    /* SplitMix64. */
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* What the library's own locks order, ThreadSanitizer sees only in a library that was instrumented, too. */
#ifdef LIBRARY_IS_INSTRUMENTED
static void between_threads(bool take) { (void)take; }
#else
static pthread_mutex_t heard_mutex = PTHREAD_MUTEX_INITIALIZER;
static void between_threads(bool take) {
    if (take) {
        pthread_mutex_lock(&heard_mutex);
    } else {
        pthread_mutex_unlock(&heard_mutex);
    }
}
#endif

/* The request is closed, so nothing is heard from here on. */
static void retire(struct heard *heard) {
    if (heard == NULL) return;
    atomic_store(&heard->closed, true);
    CHECK(atomic_load(&heard->ends) <= 1 && atomic_load(&heard->after_end) == 0);
    heard->next = atomic_load(&closed_ones);
    while (!atomic_compare_exchange_weak(&closed_ones, &heard->next, heard)) {
    }
}

/* At the end of a round: whether nothing came late. */
static void forget_all(void) {
    between_threads(true);
    struct heard *heard = atomic_exchange(&closed_ones, NULL);
    between_threads(false);
    while (heard != NULL) {
        CHECK(atomic_load(&heard->after_close) == 0);
        CHECK(atomic_load(&heard->after_end) == 0);
        CHECK(atomic_load(&heard->ends) <= 1);
        atomic_fetch_add(&heard_ends, atomic_load(&heard->ends));
        struct heard *next = heard->next;
        free(heard);
        heard = next;
    }
}

static void hear(const cactus_event *event, void *user_data) {
    struct heard *heard = user_data;
    between_threads(true);
    if (atomic_load(&heard->closed)) atomic_fetch_add(&heard->after_close, 1);
    if (atomic_load(&heard->ends) > 0) atomic_fetch_add(&heard->after_end, 1);
    if (event->kind >= CACTUS_EVENT_KIND_DONE && event->kind <= CACTUS_EVENT_KIND_FAILED) atomic_fetch_add(&heard->ends, 1);
    between_threads(false);
}

/* What any call may give whose handle another thread may close meanwhile. */
static bool may_be(int code) { return code == CACTUS_CODE_OK || code == CACTUS_CODE_HANDLE; }

static void open_model(void) {
    cactus_model *made = NULL;
    CHECK(cactus_model_load(bundle, "{\"context_tokens\": 128, \"chunk_tokens\": 16, \"threads\": 1, \"sequences\": 4}", NULL, NULL, &made) == 0);
    cactus_model *before = atomic_exchange(&model, made);
    if (before != NULL) {
        CHECK(cactus_model_close(before) == 0);
        atomic_fetch_add(&model_closes, 1);
    }
}

static cactus_request *request_of(struct slot *slot) {
    pthread_mutex_lock(&slot->mutex);
    cactus_request *request = slot->request;
    pthread_mutex_unlock(&slot->mutex);
    return request;
}

static void close_request(struct slot *slot) {
    pthread_mutex_lock(&slot->mutex);
    cactus_request *request = slot->request;
    struct heard *heard = slot->heard;
    slot->request = NULL;
    slot->heard = NULL;
    pthread_mutex_unlock(&slot->mutex);
    if (request != NULL) {
        CHECK(cactus_request_close(request) == 0);
        CHECK(cactus_request_close(request) == CACTUS_CODE_HANDLE);
        CHECK(cactus_request_cancel(request) == CACTUS_CODE_HANDLE);
    }
    retire(heard);
}

static void start(struct slot *slot, uint64_t *random) {
    char asked[200];
    snprintf(asked, sizeof asked, "{\"prompt\": \"hello %u\", \"options\": {\"max_tokens\": %u, \"ignore_eos\": true, \"seed\": 1}}",
             (unsigned)(next_random(random) % 7), (unsigned)(1 + next_random(random) % 60));
    const bool with_callback = next_random(random) % 2 == 0;
    struct heard *heard = NULL;
    if (with_callback) {
        heard = calloc(1, sizeof *heard);
        CHECK(heard != NULL);
    }
    cactus_request *request = NULL;
    const uint64_t how = next_random(random) % 3;
    int code;
    if (how == 0) {
        char said[64];
        snprintf(said, sizeof said, "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}");
        code = cactus_session_send(atomic_load(&sessions[next_random(random) % SESSIONS]), said, with_callback ? hear : NULL, heard, &request);
    } else {
        code = cactus_request_start(atomic_load(&model), asked, with_callback ? hear : NULL, heard, &request);
    }
    /* A conversation answers one request at a time, and becomes too long for the context. */
    CHECK(may_be(code) || (how == 0 && (code == CACTUS_CODE_BUSY || code == CACTUS_CODE_CONTEXT_FULL)));
    if (code != 0) {
        CHECK(request == NULL);
        atomic_fetch_add(&refused, 1);
        free(heard);
        return;
    }
    atomic_fetch_add(&started, 1);
    pthread_mutex_lock(&slot->mutex);
    const bool is_free = slot->request == NULL;
    if (is_free) {
        slot->request = request;
        slot->heard = heard;
    }
    pthread_mutex_unlock(&slot->mutex);
    if (is_free) return;
    /* Another thread has filled the slot: this one is given up. */
    CHECK(cactus_request_close(request) == 0);
    retire(heard);
}

/* Reads some events, or all. One thread at a time, so that the order can be checked. */
static void poll(struct slot *slot, uint64_t *random) {
    if (atomic_flag_test_and_set(&slot->polled)) return;
    pthread_mutex_lock(&slot->mutex);
    cactus_request *request = slot->request;
    const bool is_heard = slot->heard != NULL;
    pthread_mutex_unlock(&slot->mutex);
    /* The handle of a request that was closed is none of a later one. */
    if (request != slot->read) slot->ends = 0;
    slot->read = request;
    const bool all = next_random(random) % 2 == 0;
    bool over = false;
    for (int i = 0; request != NULL && !over && (all || i < 3); i++) {
        char *event = NULL;
        const int code = cactus_request_next(request, all ? -1 : (int64_t)(next_random(random) % 3), &event, &over);
        if (code == CACTUS_CODE_HANDLE) break;
        CHECK(code == 0);
        if (event == NULL) continue;
        const bool is_last = strstr(event, "\"event\":\"done\"") != NULL || strstr(event, "\"event\":\"cancelled\"") != NULL ||
                             strstr(event, "\"event\":\"failed\"") != NULL;
        CHECK(!is_heard && slot->ends == 0);
        if (is_last) {
            slot->ends = 1;
            atomic_fetch_add(&polled_ends, 1);
            if (strstr(event, "\"event\":\"cancelled\"") != NULL) atomic_fetch_add(&cancelled, 1);
        }
        cactus_string_free(event);
    }
    if (over && !is_heard) CHECK(slot->ends == 1);
    atomic_flag_clear(&slot->polled);
}

static void wait_for(struct slot *slot) {
    cactus_request *request = request_of(slot);
    if (request == NULL) return;
    char *result = NULL;
    const int code = cactus_request_wait(request, &result);
    CHECK(may_be(code) || code == CACTUS_CODE_CANCELLED);
    if (code == 0) {
        CHECK(result != NULL && strstr(result, "\"finish_reason\"") != NULL);
        atomic_fetch_add(&ended, 1);
    }
    cactus_string_free(result);
}

static void open_session(uint64_t *random) {
    cactus_session *made = NULL;
    const char *defaults = "{\"options\": {\"max_tokens\": 5, \"ignore_eos\": true, \"seed\": 1}}";
    const int code = cactus_session_open(atomic_load(&model), defaults, &made);
    CHECK(may_be(code));
    cactus_session *before = atomic_exchange(&sessions[next_random(random) % SESSIONS], made);
    if (before != NULL) {
        CHECK(cactus_session_close(before) == 0);
        CHECK(cactus_session_close(before) == CACTUS_CODE_HANDLE);
    }
}

static void *work(void *argument) {
    uint64_t random = (uint64_t)(uintptr_t)argument;
    for (int step = 0; step < STEPS; step++) {
        struct slot *slot = &slots[next_random(&random) % REQUESTS];
        char *text = NULL;
        switch (next_random(&random) % 16) {
        case 0:
        case 1:
        case 2:
        case 3: start(slot, &random); break;
        case 4:
        case 5: poll(slot, &random); break;
        case 6:
        case 7: {
            const int code = cactus_request_cancel(request_of(slot));
            CHECK(code == 0 || code == CACTUS_CODE_HANDLE);
            break;
        }
        case 8: close_request(slot); break;
        case 9: wait_for(slot); break;
        case 10: open_session(&random); break;
        case 11: {
            const int code = cactus_session_messages(atomic_load(&sessions[next_random(&random) % SESSIONS]), &text);
            CHECK(code == 0 || code == CACTUS_CODE_HANDLE);
            cactus_string_free(text);
            break;
        }
        case 12:
            /* One life in many is another's. */
            if (next_random(&random) % 3 == 0) open_model();
            break;
        case 13: {
            cactus_model *closing = next_random(&random) % 4 == 0 ? atomic_exchange(&model, NULL) : NULL;
            if (closing != NULL) {
                CHECK(cactus_model_close(closing) == 0);
                CHECK(cactus_model_close(closing) == CACTUS_CODE_HANDLE);
                atomic_fetch_add(&model_closes, 1);
            }
            break;
        }
        case 14: {
            const int code = cactus_model_info(atomic_load(&model), &text);
            CHECK(code == 0 || code == CACTUS_CODE_HANDLE);
            cactus_string_free(text);
            break;
        }
        default:
            cactus_memory_pressure();
            CHECK(may_be(cactus_model_set_threads(atomic_load(&model), 1, 1)));
        }
    }
    return NULL;
}

static long resident_kib(void) {
    long kib = -1;
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    while (status != NULL && fgets(line, sizeof line, status) != NULL) {
        if (sscanf(line, "RssAnon: %ld", &kib) == 1) break;
    }
    if (status != NULL) fclose(status);
    return kib;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: %s BUNDLE [ROUNDS [SEED [THREADS]]]\n", argv[0]);
        return 2;
    }
    bundle = argv[1];
    const long rounds = argc > 2 ? strtol(argv[2], NULL, 10) : 100;
    seed = argc > 3 ? strtoull(argv[3], NULL, 10) : (uint64_t)time(NULL);
    const int threads = argc > 4 ? atoi(argv[4]) : 4;
    if (rounds < 1 || threads < 1 || threads > MOST_THREADS) return 2;
    printf("seed %llu, %ld rounds of %d threads\n", (unsigned long long)seed, rounds, threads);
    fflush(stdout);
    uint64_t random = seed;
    long early = 0;
    for (int i = 0; i < REQUESTS; i++) CHECK(pthread_mutex_init(&slots[i].mutex, NULL) == 0);
    for (current = 0; current < rounds; current++) {
        open_model();
        open_session(&random);
        pthread_t running[MOST_THREADS];
        for (int i = 0; i < threads; i++) {
            CHECK(pthread_create(&running[i], NULL, work, (void *)(uintptr_t)next_random(&random)) == 0);
        }
        for (int i = 0; i < threads; i++) CHECK(pthread_join(running[i], NULL) == 0);
        /* What is left is closed in any order: the model goes first in half of the rounds. */
        const bool model_first = next_random(&random) % 2 == 0;
        cactus_model *left = atomic_exchange(&model, NULL);
        if (model_first && left != NULL) CHECK(cactus_model_close(left) == 0);
        for (int i = 0; i < REQUESTS; i++) close_request(&slots[i]);
        for (int i = 0; i < SESSIONS; i++) {
            cactus_session *session = atomic_exchange(&sessions[i], NULL);
            if (session != NULL) CHECK(cactus_session_close(session) == 0);
        }
        if (!model_first && left != NULL) CHECK(cactus_model_close(left) == 0);
        forget_all();
        if (current == rounds / 5) early = resident_kib();
    }
    const long grown = resident_kib() - early;
    printf("%ld requests, %ld refused, %ld ends read (%ld cancelled), %ld ends heard, %ld waited for, %ld models closed under others; "
           "%ld KiB more memory than after a fifth\n",
           atomic_load(&started), atomic_load(&refused), atomic_load(&polled_ends), atomic_load(&cancelled), atomic_load(&heard_ends),
           atomic_load(&ended), atomic_load(&model_closes), grown);
    /* Where nothing has happened, nothing was looked at. */
    if (rounds >= 100) {
        CHECK(started > 0 && polled_ends > 0 && cancelled > 0 && heard_ends > 0 && ended > 0 && model_closes > 0);
    }
    CHECK(rounds < 1000 || early > 0);
    /* A model takes some hundred KiB: were they kept, a thousand would be hundreds of MiB. */
    if (rounds >= 1000 && grown > 64 * 1024) {
        fprintf(stderr, "memory is not given back\n");
        return 1;
    }
    return 0;
}
