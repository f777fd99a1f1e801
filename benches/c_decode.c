/* Tokens a second of one answer through cactus.h: c_decode BUNDLE TOKENS THREADS. benches/c_overhead.sh runs it. */
#include <cactus.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct times {
    double first, last;
    unsigned long texts;
};

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void on_event(const cactus_event *event, void *user_data) {
    struct times *times = user_data;
    if (event->kind == CACTUS_EVENT_KIND_STARTED) times->first = now();
    if (event->kind == CACTUS_EVENT_KIND_TEXT) times->texts++;
    if (event->kind >= CACTUS_EVENT_KIND_DONE) times->last = now();
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    char options[200], request_json[200];
    snprintf(options, sizeof options, "{\"threads\": %d, \"context_tokens\": 4096}", atoi(argv[3]));
    snprintf(request_json, sizeof request_json,
             "{\"tokens\": [7919], \"options\": {\"max_tokens\": %d, \"ignore_eos\": true, \"temperature\": 0}}", atoi(argv[2]));
    cactus_model *model = NULL;
    if (cactus_model_load(argv[1], options, NULL, NULL, &model) != 0) goto failed;
    for (int run = 0; run < 2; run++) {
        struct times times = {0, 0, 0};
        cactus_request *request = NULL;
        char *result = NULL;
        if (cactus_request_start(model, request_json, on_event, &times, &request) != 0) goto failed;
        if (cactus_request_wait(request, &result) != 0) goto failed;
        cactus_string_free(result);
        cactus_request_close(request);
        /* The first run warms up. From the start on there are as many passes as tokens: that of the prompt gives the first. */
        if (run == 1) printf("%.2f\n", atoi(argv[2]) / (times.last - times.first));
    }
    cactus_model_close(model);
    return 0;
failed:
    fprintf(stderr, "%s\n", cactus_get_last_error());
    return 1;
}
