/* Runs the plan of the conformance suite through cactus.h. JSON is read by cJSON; what the library writes goes on as it is. */
#include <cactus.h>
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM ((size_t)4 << 20)

enum kind { MODEL, SESSION, REQUEST, PUBLIC, INDEX, LIVE };

/* What a case has made. */
struct thing {
    char *name;
    enum kind kind;
    void *handle;
    size_t dimension;
};

static struct thing things[64];
static size_t made;
static char *room;

static void die(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void *need(void *memory) {
    if (memory == NULL) die("no memory");
    return memory;
}

/* ---- steps */

static const char *text_of(const cJSON *step, const char *name) {
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(step, name));
}

static const cJSON *item(const cJSON *step, const char *name) {
    return cJSON_GetObjectItemCaseSensitive(step, name);
}

static size_t number_of(const cJSON *step, const char *name) {
    return (size_t)cJSON_GetNumberValue(item(step, name));
}

/* A value as JSON, to be freed; NULL for null. */
static char *json_of(const cJSON *value) {
    return value == NULL || cJSON_IsNull(value) ? NULL : need(cJSON_PrintUnformatted(value));
}

static struct thing *find(const cJSON *step) {
    const char *name = text_of(step, item(step, "on") != NULL ? "on" : "of");
    for (size_t i = 0; name != NULL && i < made; i++) {
        if (strcmp(things[i].name, name) == 0) return &things[i];
    }
    return NULL;
}

/* What was never made is no handle, as what was closed. */
static void *handle_of(const cJSON *step) {
    struct thing *thing = find(step);
    return thing == NULL ? NULL : thing->handle;
}

static size_t dimension_of(const cJSON *step) {
    struct thing *thing = find(step);
    return thing == NULL ? 0 : thing->dimension;
}

static void keep(const cJSON *step, enum kind kind, void *handle, size_t dimension) {
    if (made == sizeof things / sizeof things[0]) die("a case makes too much");
    const char *name = text_of(step, "as");
    char *copy = need(malloc(strlen(name) + 1));
    strcpy(copy, name);
    things[made++] = (struct thing){copy, kind, handle, dimension};
}

static void close_thing(struct thing *thing) {
    switch (thing->kind) {
    case MODEL: cactus_model_close(thing->handle); break;
    case SESSION: cactus_session_close(thing->handle); break;
    case REQUEST: cactus_request_close(thing->handle); break;
    case PUBLIC: cactus_destroy(thing->handle); break;
    case INDEX: cactus_index_destroy(thing->handle); break;
    case LIVE: cactus_stream_transcribe_stop(thing->handle, NULL, 0); break;
    }
}

/* ---- results */

static cJSON *failed(void) {
    cactus_error error;
    cactus_last_error(&error);
    cJSON *result = cJSON_CreateObject(), *inside = cJSON_AddObjectToObject(result, "error");
    cJSON_AddStringToObject(inside, "kind", error.kind);
    cJSON_AddStringToObject(inside, "message", error.message);
    return result;
}

/* Nothing, or why it failed. */
static cJSON *done(int code) { return code == 0 ? cJSON_CreateObject() : failed(); }

/* JSON that the library wrote, under a name. */
static cJSON *named(const char *name, const char *json) {
    cJSON *result = cJSON_CreateObject();
    cJSON_AddRawToObject(result, name, json);
    return result;
}

/* As `named`, of a string that belongs to us. */
static cJSON *taken(int code, const char *name, char *json) {
    cJSON *result = code == 0 ? named(name, json) : failed();
    cactus_string_free(json);
    return result;
}

static cJSON *hex_of(const float *floats, size_t count) {
    char *text = need(malloc(count * 8 + 1));
    text[0] = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &floats[i], sizeof bits);
        sprintf(text + i * 8, "%08" PRIx32, bits);
    }
    cJSON *result = cJSON_CreateString(text);
    free(text);
    return result;
}

/* Floats of their digits, to be freed. */
static float *floats_of(const char *hex, size_t *count) {
    *count = strlen(hex) / 8;
    float *floats = need(malloc((*count + 1) * sizeof *floats));
    for (size_t i = 0; i < *count; i++) {
        char digits[9] = {0};
        memcpy(digits, hex + i * 8, 8);
        const uint32_t bits = (uint32_t)strtoul(digits, NULL, 16);
        memcpy(&floats[i], &bits, sizeof bits);
    }
    return floats;
}

static uint32_t *tokens_of(const cJSON *array, size_t *count) {
    *count = (size_t)cJSON_GetArraySize(array);
    uint32_t *tokens = need(malloc((*count + 1) * sizeof *tokens));
    for (size_t i = 0; i < *count; i++) tokens[i] = (uint32_t)cJSON_GetNumberValue(cJSON_GetArrayItem(array, (int)i));
    return tokens;
}

static int *ids_of(const cJSON *step, size_t *count) {
    const cJSON *array = item(step, "ids");
    *count = (size_t)cJSON_GetArraySize(array);
    int *ids = need(malloc((*count + 1) * sizeof *ids));
    for (size_t i = 0; i < *count; i++) ids[i] = cJSON_GetArrayItem(array, (int)i)->valueint;
    return ids;
}

static char *file_of(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) die(path);
    fseek(file, 0, SEEK_END);
    *bytes = (size_t)ftell(file);
    rewind(file);
    char *data = need(malloc(*bytes + 1));
    if (fread(data, 1, *bytes, file) != *bytes) die(path);
    fclose(file);
    data[*bytes] = 0;
    return data;
}

/* ---- requests */

static int begin(const cJSON *step, const cJSON *asked, cactus_request **request) {
    struct thing *thing = find(step);
    char *json = json_of(asked);
    const int code = thing != NULL && thing->kind == SESSION ? cactus_session_send(thing->handle, json, NULL, NULL, request)
                                                             : cactus_request_start(handle_of(step), json, NULL, NULL, request);
    cJSON_free(json);
    return code;
}

static cJSON *respond(const cJSON *step, const cJSON *asked) {
    cactus_request *request = NULL;
    char *answer = NULL;
    if (begin(step, asked, &request) != 0) return failed();
    const int code = cactus_request_wait(request, &answer);
    cJSON *result = taken(code, "answer", answer);
    cactus_request_close(request);
    return result;
}

/* Events to the end, or `most` of them. */
static cJSON *events(cactus_request *request, const cJSON *step, size_t most) {
    cJSON *result = cJSON_CreateObject(), *array = cJSON_AddArrayToObject(result, "events");
    const cJSON *consent = item(step, "consent"), *cancel_after = item(step, "cancel_after");
    size_t texts = 0, count = 0;
    for (bool over = false; !over && count < most;) {
        char *event = NULL;
        if (cactus_request_next(request, -1, &event, &over) != 0) {
            cJSON_Delete(result);
            return failed();
        }
        if (event == NULL) continue;
        cJSON *read = cJSON_Parse(event);
        const char *kind = text_of(read, "event");
        if (strcmp(kind, "consent") == 0 && consent != NULL) cactus_request_consent(request, cJSON_IsTrue(consent));
        if (strcmp(kind, "text") == 0 && cancel_after != NULL && ++texts == number_of(step, "cancel_after")) {
            cactus_request_cancel(request);
        }
        cJSON_AddItemToArray(array, cJSON_CreateRaw(event));
        count++;
        cJSON_Delete(read);
        cactus_string_free(event);
    }
    return result;
}

static cJSON *stream(const cJSON *step) {
    cactus_request *request = NULL;
    if (begin(step, item(step, "request"), &request) != 0) return failed();
    cJSON *result = events(request, step, SIZE_MAX);
    cactus_request_close(request);
    return result;
}

static bool names(const cJSON *array, const char *name) {
    const cJSON *each;
    cJSON_ArrayForEach(each, array) {
        if (strcmp(each->valuestring, name) == 0) return true;
    }
    return false;
}

/* What the model reads of a call that it wants, to be freed. Those that are made are added to `calls`. */
static char *called(const cJSON *step, const cJSON *function, cJSON *calls) {
    const char *name = text_of(function, "name"), *written = text_of(function, "arguments"), *format = "%s", *said = name;
    bool is_offered = false;
    const cJSON *tool;
    cJSON_ArrayForEach(tool, item(item(step, "request"), "tools")) {
        if (strcmp(text_of(item(tool, "function"), "name"), name) == 0) is_offered = true;
    }
    cJSON *arguments = cJSON_Parse(written[0] == 0 ? "{}" : written);
    if (!is_offered) {
        format = "error: there is no tool `%s`";
    } else if (!cJSON_IsObject(arguments)) {
        said = "error: the arguments are no JSON object";
    } else if (names(item(step, "refuse"), name)) {
        said = "error: the call was refused";
    } else {
        cJSON *pair = cJSON_CreateArray();
        cJSON_AddItemToArray(pair, cJSON_CreateString(name));
        cJSON_AddItemToArray(pair, arguments);
        cJSON_AddItemToArray(calls, pair);
        arguments = NULL;
        said = text_of(item(step, "results"), name);
        if (names(item(step, "throws"), name)) format = "error: %s";
    }
    cJSON_Delete(arguments);
    const size_t size = strlen(format) + strlen(said) + 1;
    char *text = need(malloc(size));
    snprintf(text, size, format, said);
    return text;
}

/* Asks, calls the tools that are wanted, and goes on with what they give. */
static cJSON *tools(const cJSON *step) {
    cJSON *request = cJSON_Duplicate(item(step, "request"), true), *calls = cJSON_CreateArray();
    for (size_t round = 0;; round++) {
        cJSON *result = respond(step, request);
        cJSON *read = NULL;
        if (item(result, "error") == NULL) {
            read = cJSON_Parse(item(result, "answer")->valuestring);
            const cJSON *message = item(read, "message"), *wanted = item(message, "tool_calls");
            const bool is_cancelled = strcmp(text_of(read, "finish_reason"), "cancelled") == 0;
            if (wanted != NULL && !is_cancelled && round < number_of(step, "most")) {
                cJSON *messages = cJSON_GetObjectItemCaseSensitive(request, "messages");
                cJSON_AddItemToArray(messages, cJSON_Duplicate(message, true));
                const cJSON *call;
                cJSON_ArrayForEach(call, wanted) {
                    char *content = called(step, item(call, "function"), calls);
                    cJSON *said = cJSON_CreateObject();
                    cJSON_AddStringToObject(said, "role", "tool");
                    cJSON_AddStringToObject(said, "tool_call_id", text_of(call, "id"));
                    cJSON_AddStringToObject(said, "content", content);
                    free(content);
                    cJSON_AddItemToArray(messages, said);
                }
                cJSON_Delete(read);
                cJSON_Delete(result);
                continue;
            }
        }
        cJSON_Delete(read);
        cJSON_AddItemToObject(result, "calls", calls);
        cJSON_Delete(request);
        return result;
    }
}

static cJSON *structured(const cJSON *step) {
    cJSON *request = cJSON_Duplicate(item(step, "request"), true);
    cJSON_AddItemToObject(request, "schema", cJSON_Duplicate(item(step, "schema"), true));
    cJSON *result = respond(step, request);
    cJSON_Delete(request);
    if (item(result, "error") != NULL) return result;
    cJSON *read = cJSON_Parse(item(result, "answer")->valuestring), *value = cJSON_CreateObject();
    cJSON_Delete(result);
    cJSON *parsed = cJSON_IsTrue(item(read, "whole")) ? cJSON_Parse(text_of(item(read, "message"), "content")) : NULL;
    if (parsed != NULL) {
        cJSON_AddItemToObject(value, "value", parsed);
    } else {
        char message[128];
        snprintf(message, sizeof message, "the answer ended (%s) before it was whole", text_of(read, "finish_reason"));
        cJSON *inside = cJSON_AddObjectToObject(value, "error");
        cJSON_AddStringToObject(inside, "kind", cactus_error_kind(CACTUS_CODE_CANCELLED));
        cJSON_AddStringToObject(inside, "message", message);
    }
    cJSON_Delete(read);
    return value;
}

/* ---- vectors, indexes and sound */

static cJSON *embed(const cJSON *step, bool is_picture) {
    cJSON *result = cJSON_CreateObject(), *vectors = cJSON_AddArrayToObject(result, "vectors");
    const cJSON *texts = item(step, "texts"), *text;
    float *floats = (float *)room;
    if (is_picture) {
        const int count = cactus_image_embed(handle_of(step), text_of(step, "path"), floats, ROOM, NULL);
        if (count >= 0) return cJSON_AddItemToArray(vectors, hex_of(floats, (size_t)count)), result;
        return cJSON_Delete(result), failed();
    }
    cJSON_ArrayForEach(text, texts) {
        const bool normalize = cJSON_IsTrue(item(step, "normalize"));
        const int count = cactus_embed(handle_of(step), text->valuestring, floats, ROOM, NULL, normalize);
        if (count < 0) return cJSON_Delete(result), failed();
        cJSON_AddItemToArray(vectors, hex_of(floats, (size_t)count));
    }
    return result;
}

static cJSON *index_add(const cJSON *step) {
    size_t count;
    int *ids = ids_of(step, &count);
    const char **documents = need(calloc(count + 1, sizeof *documents)), **metadatas = need(calloc(count + 1, sizeof *metadatas));
    float **vectors = need(calloc(count + 1, sizeof *vectors));
    for (size_t i = 0; i < count; i++) {
        size_t dimension;
        documents[i] = cJSON_GetArrayItem(item(step, "documents"), (int)i)->valuestring;
        metadatas[i] = cJSON_GetStringValue(cJSON_GetArrayItem(item(step, "metadatas"), (int)i));
        vectors[i] = floats_of(cJSON_GetArrayItem(item(step, "vectors"), (int)i)->valuestring, &dimension);
    }
    cJSON *result = done(cactus_index_add(handle_of(step), ids, documents, metadatas, (const float *const *)vectors, count,
                                          dimension_of(step)));
    for (size_t i = 0; i < count; i++) free(vectors[i]);
    free(vectors);
    free(metadatas);
    free(documents);
    free(ids);
    return result;
}

static cJSON *index_query(const cJSON *step) {
    char *options = json_of(item(step, "options"));
    cJSON *result = cJSON_CreateObject(), *found = cJSON_AddArrayToObject(result, "found");
    const cJSON *vector;
    cJSON_ArrayForEach(vector, item(step, "vectors")) {
        size_t dimension, ids_found = 64, scores_found = 64;
        float *floats = floats_of(vector->valuestring, &dimension);
        int ids[64], *id_place = ids;
        float scores[64], *score_place = scores;
        const float *place = floats;
        const int code = cactus_index_query(handle_of(step), &place, 1, dimension, options, &id_place, &ids_found, &score_place,
                                            &scores_found);
        free(floats);
        if (code != 0) {
            cJSON_free(options);
            cJSON_Delete(result);
            return failed();
        }
        cJSON *hits = cJSON_CreateArray();
        for (size_t i = 0; i < ids_found; i++) {
            cJSON *hit = cJSON_CreateArray();
            cJSON_AddItemToArray(hit, cJSON_CreateNumber(ids[i]));
            cJSON_AddItemToArray(hit, hex_of(&scores[i], 1));
            cJSON_AddItemToArray(hits, hit);
        }
        cJSON_AddItemToArray(found, hits);
    }
    cJSON_free(options);
    return result;
}

static cJSON *index_get(const cJSON *step) {
    size_t count;
    int *ids = ids_of(step, &count);
    cJSON *result = cJSON_CreateObject(), *documents = cJSON_AddArrayToObject(result, "documents");
    for (size_t i = 0; i < count; i++) {
        static char text[1 << 16], metadata[1 << 16];
        static float vector[1 << 12];
        char *text_place = text, *metadata_place = metadata;
        float *vector_place = vector;
        size_t text_size = sizeof text, metadata_size = sizeof metadata, floats = sizeof vector / sizeof vector[0];
        const int code = cactus_index_get(handle_of(step), &ids[i], 1, &text_place, &text_size, &metadata_place, &metadata_size,
                                          &vector_place, &floats);
        if (code != 0) {
            free(ids);
            cJSON_Delete(result);
            return failed();
        }
        cJSON *document = cJSON_CreateArray();
        cJSON_AddItemToArray(document, cJSON_CreateString(text));
        cJSON_AddItemToArray(document, cJSON_CreateString(metadata));
        cJSON_AddItemToArray(document, hex_of(vector, floats));
        cJSON_AddItemToArray(documents, document);
    }
    free(ids);
    return result;
}

static cJSON *written(int code) { return code >= 0 ? named("result", room) : failed(); }

static cJSON *heard(const cJSON *step, const char *op) {
    void *model = handle_of(step);
    const char *file = text_of(step, "file");
    char *options = json_of(item(step, "options")), *pcm = NULL;
    size_t bytes = 0;
    if (file == NULL) pcm = file_of(text_of(step, "pcm"), &bytes);
    const uint8_t *samples = (const uint8_t *)pcm;
    int code;
    if (strcmp(op, "transcribe") == 0) {
        code = cactus_transcribe(model, file, NULL, room, ROOM, options, NULL, NULL, samples, bytes);
    } else if (strcmp(op, "speech") == 0) {
        code = cactus_vad(model, file, room, ROOM, options, samples, bytes);
    } else {
        code = cactus_detect_language(model, file, room, ROOM, options, samples, bytes);
    }
    cJSON *result = written(code);
    free(pcm);
    cJSON_free(options);
    return result;
}

static cJSON *push(const cJSON *step) {
    size_t bytes;
    char *pcm = file_of(text_of(step, "pcm"), &bytes);
    const size_t from = number_of(step, "from") * 2, to = number_of(step, "to") * 2;
    cJSON *result = written(cactus_stream_transcribe_process(handle_of(step), (const uint8_t *)pcm + from, to - from, room, ROOM));
    free(pcm);
    return result;
}

/* ---- models */

static cJSON *load(const cJSON *step) {
    cactus_model *model = NULL;
    char *options = json_of(item(step, "options"));
    const int code = cactus_model_load(text_of(step, "source"), options, NULL, NULL, &model);
    cJSON_free(options);
    if (code != 0) return failed();
    keep(step, MODEL, model, 0);
    return cJSON_CreateObject();
}

static cJSON *opened(const cJSON *step, enum kind kind, void *handle, size_t dimension) {
    if (handle == NULL) return failed();
    keep(step, kind, handle, dimension);
    return cJSON_CreateObject();
}

static cJSON *info(const cJSON *step) {
    char *json = NULL;
    if (cactus_model_info(handle_of(step), &json) != 0) return failed();
    cJSON *read = cJSON_Parse(json), *result = cJSON_CreateObject(), *inside = cJSON_AddObjectToObject(result, "info");
    const cJSON *field;
    cJSON_ArrayForEach(field, item(step, "fields")) {
        cJSON_AddItemToObject(inside, field->valuestring, cJSON_Duplicate(item(read, field->valuestring), true));
    }
    cJSON_Delete(read);
    cactus_string_free(json);
    return result;
}

static cJSON *tokens(const cJSON *step, const char *op) {
    const bool special = cJSON_IsTrue(item(step, "special"));
    cJSON *result;
    uint32_t *ids = NULL;
    size_t count = 0;
    char *text = NULL;
    if (strcmp(op, "tokenize") == 0) {
        if (cactus_model_tokenize(handle_of(step), text_of(step, "text"), special, &ids, &count) != 0) return failed();
        result = cJSON_CreateObject();
        cJSON *array = cJSON_AddArrayToObject(result, "tokens");
        for (size_t i = 0; i < count; i++) cJSON_AddItemToArray(array, cJSON_CreateNumber(ids[i]));
        cactus_tokens_free(ids, count);
        return result;
    }
    ids = tokens_of(item(step, "tokens"), &count);
    if (strcmp(op, "detokenize") == 0) {
        const int code = cactus_model_detokenize(handle_of(step), ids, count, special, &text);
        result = code == 0 ? cJSON_CreateObject() : failed();
        if (code == 0) cJSON_AddStringToObject(result, "text", text);
        cactus_string_free(text);
    } else {
        const int code = cactus_model_score(handle_of(step), ids, count, number_of(step, "first"), &text);
        result = taken(code, "score", text);
    }
    free(ids);
    return result;
}

static cJSON *run(const cJSON *step) {
    const char *op = text_of(step, "op");
    char *json = NULL, *options = NULL;
    void *handle = handle_of(step);
    cJSON *result;
#define IS(name) (strcmp(op, name) == 0)
    if (IS("versions")) {
        result = cJSON_CreateObject();
        cJSON_AddNumberToObject(result, "abi", cactus_abi_version());
        return result;
    }
    if (IS("check_bundle")) {
        cactus_check_bundle(text_of(step, "path"), cJSON_IsTrue(item(step, "verify")), &json);
        return taken(0, "report", json);
    }
    if (IS("load")) return load(step);
    if (IS("load_embedder") || IS("load_transcriber")) return opened(step, PUBLIC, cactus_init(text_of(step, "source"), NULL, false), 0);
    if (IS("info")) return info(step);
    if (IS("tokenize") || IS("detokenize") || IS("score")) return tokens(step, op);
    if (IS("session")) {
        cactus_session *session = NULL;
        options = json_of(item(step, "defaults"));
        const int code = cactus_session_open(handle, options, &session);
        cJSON_free(options);
        return code == 0 ? opened(step, SESSION, session, 0) : failed();
    }
    if (IS("respond")) return respond(step, item(step, "request"));
    if (IS("stream")) return stream(step);
    if (IS("start")) {
        cactus_request *request = NULL;
        return begin(step, item(step, "request"), &request) == 0 ? opened(step, REQUEST, request, 0) : failed();
    }
    if (IS("read")) return events(handle, step, number_of(step, "count"));
    if (IS("collect")) return events(handle, step, SIZE_MAX);
    if (IS("cancel")) return done(cactus_request_cancel(handle));
    if (IS("messages")) {
        const int code = cactus_session_messages(handle, &json);
        return taken(code, "messages", json);
    }
    if (IS("tools")) return tools(step);
    if (IS("structured")) return structured(step);
    if (IS("set_policy")) {
        options = json_of(item(step, "options"));
        result = done(cactus_model_set_policy(handle, text_of(step, "policy"), options));
        cJSON_free(options);
        return result;
    }
    if (IS("set_threads")) return done(cactus_model_set_threads(handle, number_of(step, "threads"), number_of(step, "decode_threads")));
    if (IS("memory_pressure")) return cactus_memory_pressure(), cJSON_CreateObject();
    if (IS("embed")) return embed(step, false);
    if (IS("embed_image")) return embed(step, true);
    if (IS("index_open")) {
        const size_t dimension = number_of(step, "dimension");
        return opened(step, INDEX, cactus_index_init(text_of(step, "folder"), dimension), dimension);
    }
    if (IS("index_add")) return index_add(step);
    if (IS("index_query")) return index_query(step);
    if (IS("index_get")) return index_get(step);
    if (IS("index_delete")) {
        size_t count;
        int *ids = ids_of(step, &count);
        result = done(cactus_index_delete(handle, ids, count));
        free(ids);
        return result;
    }
    if (IS("index_compact")) return done(cactus_index_compact(handle));
    if (IS("transcribe") || IS("speech") || IS("detect_language")) return heard(step, op);
    if (IS("live")) {
        options = json_of(item(step, "options"));
        result = opened(step, LIVE, cactus_stream_transcribe_start(handle, options), 0);
        cJSON_free(options);
        return result;
    }
    if (IS("push")) return push(step);
    if (IS("finish")) return written(cactus_stream_transcribe_stop(handle, room, ROOM));
    if (IS("close")) {
        struct thing *thing = find(step);
        if (thing != NULL) close_thing(thing);
        return cJSON_CreateObject();
    }
    result = cJSON_CreateObject();
    cJSON_AddStringToObject(result, "absent", "this runner does not know the operation");
    return result;
#undef IS
}

static void line(FILE *out, cJSON *value) {
    char *text = need(cJSON_PrintUnformatted(value));
    fprintf(out, "%s\n", text);
    fflush(out);
    cJSON_free(text);
    cJSON_Delete(value);
}

int main(int argc, char **argv) {
    size_t bytes;
    if (argc != 3) die("usage: runner PLAN RESULTS");
    if (cactus_abi_version() != CACTUS_ABI_VERSION) die("libcactus has another ABI than cactus.h");
    char *text = file_of(argv[1], &bytes);
    cJSON *plan = need(cJSON_Parse(text));
    FILE *out = need(fopen(argv[2], "w"));
    room = need(malloc(ROOM));
    const cJSON *cases = item(plan, "cases"), *each, *step;
    cJSON_ArrayForEach(each, cases) {
        cJSON *written_case = cJSON_CreateObject();
        cJSON_AddStringToObject(written_case, "case", text_of(each, "name"));
        cJSON *results = cJSON_AddArrayToObject(written_case, "results");
        cJSON_ArrayForEach(step, item(each, "steps")) cJSON_AddItemToArray(results, run(step));
        line(out, written_case);
        /* What was made last goes first. */
        while (made > 0) {
            close_thing(&things[--made]);
            free(things[made].name);
        }
    }
    cJSON *end = cJSON_CreateObject();
    cJSON_AddNumberToObject(end, "end", cJSON_GetArraySize(cases));
    line(out, end);
    cJSON_Delete(plan);
    free(text);
    free(room);
    return fclose(out) == 0 ? 0 : 1;
}
