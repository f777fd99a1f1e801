/* Models by name: a folder that is no bundle, converted into a cache with progress, and names of nothing. No network is used. */
#include "cactus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, cactus_get_last_error());               \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

typedef struct {
    const char *stop_at;
    int converting;
    int loading;
    int after_stop;
} heard;

static int hear(const char *stage, const char *what, uint64_t done, uint64_t total, void *user_data) {
    heard *h = user_data;
    CHECK(what != NULL && done <= total);
    h->after_stop += h->stop_at != NULL && h->converting + h->loading > 0;
    h->converting += strcmp(stage, "converting") == 0;
    h->loading += strcmp(stage, "loading") == 0;
    return h->stop_at != NULL && strcmp(stage, h->stop_at) == 0;
}

/* The code of loading `name` with `options`, and whether there is a model. */
static int load(const char *name, const char *options, heard *h, cactus_model **model) {
    const int code = cactus_model_load(name, options, h != NULL ? hear : NULL, h, model);
    CHECK((code == 0) == (*model != NULL));
    return code;
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    const char *source = argv[1];
    char options[4096], four[4096];
    snprintf(options, sizeof options, "{\"offline\": true, \"cache\": \"%s\", \"context_tokens\": 128}", argv[2]);
    snprintf(four, sizeof four, "{\"offline\": true, \"cache\": \"%s\", \"bits\": 7}", argv[2]);
    cactus_model *model = NULL;

    /* Stopped while it converts, made, and found the next time. */
    heard stopped = {"converting", 0, 0, 0}, made = {NULL, 0, 0, 0}, found = {NULL, 0, 0, 0};
    CHECK(load(source, options, &stopped, &model) == CACTUS_CODE_CANCELLED);
    CHECK(stopped.converting == 1 && stopped.loading == 0 && stopped.after_stop == 0);
    CHECK(load(source, options, &made, &model) == 0 && made.converting > 1 && made.loading == 2);
    CHECK(cactus_model_close(model) == 0);
    CHECK(load(source, options, &found, &model) == 0 && found.converting == 0 && found.loading == 2);

    const char *ask = "{\"prompt\": \"hello\", \"options\": {\"max_tokens\": 4}}";
    cactus_request *request = NULL;
    char *text = NULL;
    CHECK(cactus_request_start(model, ask, NULL, NULL, &request) == 0 && cactus_request_wait(request, &text) == 0);
    cactus_string_free(text);
    CHECK(cactus_request_close(request) == 0 && cactus_model_close(model) == 0);

    /* Only the folder, for the functions of the public engine. */
    snprintf(options, sizeof options, "{\"offline\": true, \"cache\": \"%s\"}", argv[2]);
    CHECK(cactus_model_prepare(source, options, NULL, NULL, &text) == 0);
    void *public_model = cactus_init(text, NULL, false);
    CHECK(public_model != NULL);
    cactus_destroy(public_model);
    cactus_string_free(text);

    /* Names of nothing, and options of nothing. */
    CHECK(load("smolm2", options, NULL, &model) == CACTUS_CODE_NOT_FOUND);
    CHECK(strstr(cactus_get_last_error(), "smollm2") != NULL);
    CHECK(load("/nowhere", options, NULL, &model) == CACTUS_CODE_NOT_FOUND);
    CHECK(load("", options, NULL, &model) == CACTUS_CODE_NOT_FOUND);
    CHECK(load("org/", options, NULL, &model) == CACTUS_CODE_NOT_FOUND);
    CHECK(load("some-org/some-model", options, NULL, &model) == CACTUS_CODE_OFFLINE);
    CHECK(load("\xff", options, NULL, &model) == CACTUS_CODE_ARGUMENT);
    CHECK(load(NULL, options, NULL, &model) == CACTUS_CODE_ARGUMENT);
    CHECK(load(source, four, NULL, &model) == CACTUS_CODE_ARGUMENT);
    CHECK(strstr(cactus_get_last_error(), "`bits`") != NULL);
    CHECK(load(source, "{\"bit\": 4}", NULL, &model) == CACTUS_CODE_ARGUMENT);
    puts("ok");
    return 0;
}
