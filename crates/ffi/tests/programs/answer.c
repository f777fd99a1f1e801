/* Every function of cactus.h that a C program uses first, with a model given on the command line. */
#include "cactus.h"

#include <pthread.h>
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

/* Events come on a thread of the library. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void count(const cactus_event *event, void *user_data) {
    int *kinds = user_data;
    CHECK(event->size == sizeof *event);
    CHECK(event->kind >= 1 && event->kind <= 7);
    pthread_mutex_lock(&lock);
    kinds[event->kind] += 1;
    pthread_mutex_unlock(&lock);
}

static int counted(const int *kinds, int kind) {
    pthread_mutex_lock(&lock);
    const int found = kinds[kind];
    pthread_mutex_unlock(&lock);
    return found;
}

static void hear(const char *token, uint32_t id, void *user_data) {
    (void)id;
    *(size_t *)user_data += strlen(token);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    CHECK(cactus_abi_version() == CACTUS_ABI_VERSION);

    char *report = NULL;
    CHECK(cactus_check_bundle(argv[1], true, &report) == 0);
    cactus_string_free(report);
    CHECK(cactus_check_bundle("/nowhere", false, &report) == CACTUS_CODE_BUNDLE);
    cactus_string_free(report);

    cactus_model *model = NULL;
    CHECK(cactus_model_load(argv[1], "{\"context_tokens\": 256, \"threads\": 2}", NULL, NULL, &model) == 0);

    /* A stream by callback, then by polling. */
    const char *ask = "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}], \"options\": {\"max_tokens\": 8}}";
    int kinds[8] = {0};
    cactus_request *request = NULL;
    CHECK(cactus_request_start(model, ask, count, kinds, &request) == 0);
    char *result = NULL;
    CHECK(cactus_request_wait(request, &result) == 0);
    cactus_string_free(result);
    CHECK(cactus_request_close(request) == 0);
    CHECK(counted(kinds, CACTUS_EVENT_KIND_STARTED) == 1 && counted(kinds, CACTUS_EVENT_KIND_DONE) == 1);
    CHECK(cactus_request_close(request) == CACTUS_CODE_HANDLE);

    CHECK(cactus_request_start(model, ask, NULL, NULL, &request) == 0);
    for (bool over = false; !over;) {
        char *event = NULL;
        CHECK(cactus_request_next(request, 1000, &event, &over) == 0);
        cactus_string_free(event);
    }
    CHECK(cactus_request_close(request) == 0);

    /* A conversation, closed while it answers. */
    cactus_session *session = NULL;
    CHECK(cactus_session_open(model, "{\"options\": {\"max_tokens\": 100}}", &session) == 0);
    CHECK(cactus_session_send(session, "\"tell me more\"", count, kinds, &request) == 0);
    CHECK(cactus_session_close(session) == 0);
    CHECK(cactus_request_close(request) == 0);

    uint32_t *tokens = NULL;
    size_t length = 0;
    CHECK(cactus_model_tokenize(model, "hello there", true, &tokens, &length) == 0 && length > 1);
    char *text = NULL;
    CHECK(cactus_model_detokenize(model, tokens, length, true, &text) == 0 && strcmp(text, "hello there") == 0);
    cactus_string_free(text);
    CHECK(cactus_model_score(model, tokens, length, 1, &text) == 0);
    cactus_string_free(text);
    cactus_tokens_free(tokens, length);
    CHECK(cactus_model_info(model, &text) == 0);
    cactus_string_free(text);
    cactus_memory_pressure();

    /* The functions of the public engine, with the same model. */
    static char buffer[1 << 16];
    size_t bytes = 0;
    const char *messages = "[{\"role\": \"user\", \"content\": \"hello\"}]";
    CHECK(cactus_complete(model, messages, buffer, sizeof buffer, "{\"max_tokens\": 6}", NULL, hear, &bytes, NULL, 0) > 0);
    CHECK(strstr(buffer, "\"success\":true") != NULL);
    char small[4];
    CHECK(cactus_complete(model, messages, small, sizeof small, "{\"max_tokens\": 1}", NULL, NULL, NULL, NULL, 0) == -2);
    CHECK(cactus_complete(model, "[", buffer, sizeof buffer, NULL, NULL, NULL, NULL, NULL, 0) == -1);
    cactus_error error;
    CHECK(cactus_last_error(&error) == 0 && error.code == CACTUS_CODE_ARGUMENT && strcmp(error.kind, "argument") == 0);

    /* Closed with a request under way. */
    CHECK(cactus_request_start(model, ask, count, kinds, &request) == 0);
    CHECK(cactus_model_close(model) == 0);
    CHECK(cactus_model_close(model) == CACTUS_CODE_HANDLE);
    CHECK(cactus_request_close(request) == 0);
    puts("ok");
    return 0;
}
