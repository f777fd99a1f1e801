/*
 * What cactus_jni.c needs beside its generated functions. It is included once, behind the table `lib`.
 *
 * No function here calls JNI while an exception is pending, but to look at it. What the library gave away is freed in any case.
 */

#ifndef CACTUS_JNI_SUPPORT_H
#define CACTUS_JNI_SUPPORT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#include <windows.h>
#define LIBRARY_NAME "cactus.dll"
#else
#include <dlfcn.h>
#include <pthread.h>
#ifdef __APPLE__
#define LIBRARY_NAME "libcactus.dylib"
#else
#define LIBRARY_NAME "libcactus.so"
#endif
#endif

static JavaVM *machine;

typedef struct symbol {
    const char *name;
    void **place;
} symbol;

typedef struct callback_method {
    const char *interface;
    const char *signature;
    jmethodID *place;
} callback_method;

/* An object that is called, and what it has thrown. */
typedef struct closure {
    jobject object;
    jthrowable thrown;
    bool is_kept;
} closure;

/* ---- threads ---- */

#ifndef _WIN32
static pthread_key_t attached;

/* A thread that ends while it is attached would end the process on Android. */
static void detach(void *value) {
    (void)value;
    (*machine)->DetachCurrentThread(machine);
}
#endif

/* The environment of this thread. A thread that the VM does not know is attached as a daemon, until it ends. */
static JNIEnv *environment(void) {
    JNIEnv *env = NULL;
    if ((*machine)->GetEnv(machine, (void **)&env, JNI_VERSION_1_6) == JNI_OK) return env;
    /* The headers of Android and of the JDK differ in the type of the second argument. */
    if ((*machine)->AttachCurrentThreadAsDaemon(machine, (void *)&env, NULL) != JNI_OK) return NULL;
#ifndef _WIN32
    pthread_setspecific(attached, env);
#endif
    return env;
}

/* ---- errors ---- */

static void throw_new(JNIEnv *env, const char *name, const char *message) {
    if ((*env)->ExceptionCheck(env)) return;
    jclass class = (*env)->FindClass(env, name);
    if (class != NULL) (*env)->ThrowNew(env, class, message);
}

static bool out_of_memory(JNIEnv *env) {
    throw_new(env, "java/lang/OutOfMemoryError", "cactus: no memory for what is given to the library");
    return false;
}

static bool refused(JNIEnv *env, const char *message) {
    throw_new(env, "java/lang/IllegalArgumentException", message);
    return false;
}

static void drop(JNIEnv *env, jobject local) {
    if (local != NULL) (*env)->DeleteLocalRef(env, local);
}

/* ---- to C ---- */

static bool text_in(JNIEnv *env, jbyteArray bytes, char **text) {
    if (bytes == NULL) return true;
    const jsize length = (*env)->GetArrayLength(env, bytes);
    *text = malloc((size_t)length + 1);
    if (*text == NULL) return out_of_memory(env);
    (*env)->GetByteArrayRegion(env, bytes, 0, length, (jbyte *)*text);
    (*text)[length] = 0;
    return !(*env)->ExceptionCheck(env);
}

static void texts_free(char **texts, size_t count) {
    if (texts == NULL) return;
    for (size_t i = 0; i < count; i++) free(texts[i]);
    free(texts);
}

static bool texts_in(JNIEnv *env, jobjectArray array, size_t count, char ***texts) {
    if (array == NULL) return true;
    if ((size_t)(*env)->GetArrayLength(env, array) < count) return refused(env, "cactus: fewer texts than their count");
    *texts = calloc(count + 1, sizeof **texts);
    if (*texts == NULL) return out_of_memory(env);
    for (size_t i = 0; i < count; i++) {
        jbyteArray bytes = (*env)->GetObjectArrayElement(env, array, (jsize)i);
        const bool taken = text_in(env, bytes, *texts + i);
        drop(env, bytes);
        if (!taken) return false;
    }
    return true;
}

static bool room_in(JNIEnv *env, jobject buffer, size_t bytes, void **room) {
    if (buffer == NULL) return bytes == 0 ? true : refused(env, "cactus: no buffer, but its size");
    const jlong capacity = (*env)->GetDirectBufferCapacity(env, buffer);
    if (capacity < 0) return refused(env, "cactus: a buffer that is not direct");
    if ((size_t)capacity < bytes) return refused(env, "cactus: a buffer smaller than its size");
    *room = (*env)->GetDirectBufferAddress(env, buffer);
    return true;
}

static bool rooms_in(JNIEnv *env, jobjectArray array, void ***rooms) {
    if (array == NULL) return true;
    const jsize count = (*env)->GetArrayLength(env, array);
    *rooms = calloc((size_t)count + 1, sizeof **rooms);
    if (*rooms == NULL) return out_of_memory(env);
    for (jsize i = 0; i < count; i++) {
        jobject buffer = (*env)->GetObjectArrayElement(env, array, i);
        const bool taken = room_in(env, buffer, 0, *rooms + i);
        drop(env, buffer);
        if (!taken) return false;
    }
    return true;
}

static bool ints_in(JNIEnv *env, jintArray array, size_t count, jint **ints) {
    if (array == NULL) return true;
    const jsize length = (*env)->GetArrayLength(env, array);
    if ((size_t)length < count) return refused(env, "cactus: fewer numbers than their count");
    *ints = malloc(((size_t)length + 1) * sizeof **ints);
    if (*ints == NULL) return out_of_memory(env);
    (*env)->GetIntArrayRegion(env, array, 0, length, *ints);
    return !(*env)->ExceptionCheck(env);
}

static bool sizes_in(JNIEnv *env, jlongArray array, size_t **sizes) {
    if (array == NULL) return true;
    const jsize length = (*env)->GetArrayLength(env, array);
    *sizes = calloc((size_t)length + 1, sizeof **sizes);
    if (*sizes == NULL) return out_of_memory(env);
    for (jsize i = 0; i < length; i++) {
        jlong size = 0;
        (*env)->GetLongArrayRegion(env, array, i, 1, &size);
        (*sizes)[i] = (size_t)size;
    }
    return !(*env)->ExceptionCheck(env);
}

/* ---- from C ---- */

static jbyteArray bytes_of(JNIEnv *env, const char *text) {
    if (text == NULL || (*env)->ExceptionCheck(env)) return NULL;
    const size_t length = strlen(text);
    if (length > INT32_MAX) {
        out_of_memory(env);
        return NULL;
    }
    jbyteArray bytes = (*env)->NewByteArray(env, (jsize)length);
    if (bytes != NULL) (*env)->SetByteArrayRegion(env, bytes, 0, (jsize)length, (const jbyte *)text);
    return bytes;
}

static void string_at(JNIEnv *env, jobjectArray array, jsize at, const char *text) {
    if (array == NULL) return;
    jbyteArray bytes = bytes_of(env, text);
    if (!(*env)->ExceptionCheck(env)) (*env)->SetObjectArrayElement(env, array, at, bytes);
    drop(env, bytes);
}

static void owned_out(JNIEnv *env, jobjectArray array, char *text) {
    string_at(env, array, 0, text);
    lib.cactus_string_free(text);
}

static void tokens_out(JNIEnv *env, jobjectArray array, uint32_t *tokens, size_t count) {
    if (array != NULL && tokens != NULL && !(*env)->ExceptionCheck(env)) {
        jintArray ints = count > INT32_MAX ? NULL : (*env)->NewIntArray(env, (jsize)count);
        if (ints != NULL) {
            (*env)->SetIntArrayRegion(env, ints, 0, (jsize)count, (const jint *)tokens);
            (*env)->SetObjectArrayElement(env, array, 0, ints);
            drop(env, ints);
        }
    }
    lib.cactus_tokens_free(tokens, count);
}

static void number_at(JNIEnv *env, jintArray array, jsize at, int32_t number) {
    const jint value = number;
    if (array != NULL && !(*env)->ExceptionCheck(env)) (*env)->SetIntArrayRegion(env, array, at, 1, &value);
}

static void handle_out(JNIEnv *env, jlongArray array, const void *handle) {
    const jlong value = (jlong)(intptr_t)handle;
    if (array != NULL && !(*env)->ExceptionCheck(env)) (*env)->SetLongArrayRegion(env, array, 0, 1, &value);
}

static void flag_out(JNIEnv *env, jbooleanArray array, bool flag) {
    const jboolean value = flag ? JNI_TRUE : JNI_FALSE;
    if (array != NULL && !(*env)->ExceptionCheck(env)) (*env)->SetBooleanArrayRegion(env, array, 0, 1, &value);
}

static void sizes_out(JNIEnv *env, jlongArray array, const size_t *sizes) {
    if (array == NULL || sizes == NULL || (*env)->ExceptionCheck(env)) return;
    const jsize length = (*env)->GetArrayLength(env, array);
    for (jsize i = 0; i < length; i++) {
        const jlong size = (jlong)sizes[i];
        (*env)->SetLongArrayRegion(env, array, i, 1, &size);
    }
}

/* ---- callbacks ---- */

static bool closure_begin(JNIEnv *env, jobject object, closure *self) {
    if (object == NULL) return true;
    self->object = (*env)->NewGlobalRef(env, object);
    return self->object != NULL ? true : out_of_memory(env);
}

/* Throws what the object threw. */
static void closure_end(JNIEnv *env, closure *self) {
    if (self->object != NULL) (*env)->DeleteGlobalRef(env, self->object);
    if (self->thrown == NULL) return;
    if (!(*env)->ExceptionCheck(env)) (*env)->Throw(env, self->thrown);
    (*env)->DeleteGlobalRef(env, self->thrown);
}

/* For ever: another thread may be in it when it is replaced. */
static bool closure_keep(JNIEnv *env, jobject object, closure **self) {
    if (object == NULL) return true;
    *self = calloc(1, sizeof **self);
    if (*self == NULL) return out_of_memory(env);
    (*self)->is_kept = true;
    return closure_begin(env, object, *self);
}

/* Takes what the object has thrown: whoever waits gets it, and what is kept forgets it. */
static bool caught(JNIEnv *env, closure *self) {
    jthrowable thrown = (*env)->ExceptionOccurred(env);
    if (thrown == NULL) return false;
    (*env)->ExceptionClear(env);
    if (!self->is_kept) self->thrown = (*env)->NewGlobalRef(env, thrown);
    drop(env, thrown);
    return true;
}

/* ---- opening ---- */

#ifdef _WIN32
static void *load(const char *path, char *why, size_t size) {
    HMODULE module = LoadLibraryA(path);
    if (module == NULL) snprintf(why, size, "%s cannot be loaded: error %lu", path, GetLastError());
    return module;
}
static void *find(void *library, const char *name) { return (void *)GetProcAddress(library, name); }
#else
static void *load(const char *path, char *why, size_t size) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) snprintf(why, size, "%s", dlerror());
    return library;
}
static void *find(void *library, const char *name) { return dlsym(library, name); }
#endif

/* Finds each function. A library is never unloaded: threads of it may run. */
static void resolve(const char *path, jint abi, const symbol *symbols, size_t count, char *why, size_t size) {
    if (abi != CACTUS_ABI_VERSION) {
        const char *old = abi < CACTUS_ABI_VERSION ? "the classes of dev.cactus-engine:cactus-engine are" : "libcactus_jni is";
        snprintf(why, size, "libcactus_jni knows the ABI %d and the classes know %d: %s old, take both from one release",
                 CACTUS_ABI_VERSION, (int)abi, old);
        return;
    }
    void *library = load(path, why, size);
    if (library == NULL) return;
    void *version = find(library, "cactus_abi_version");
    if (version == NULL) {
        snprintf(why, size, "%s is no libcactus: it has no function cactus_abi_version", path);
        return;
    }
    uint32_t found = 0;
    uint32_t (*abi_version)(void) = NULL;
    memcpy(&abi_version, &version, sizeof version);
    found = abi_version();
    if (found != CACTUS_ABI_VERSION) {
        const char *advice = found < CACTUS_ABI_VERSION ? "the library is old, update libcactus"
                                                        : "the SDK is old, update dev.cactus-engine:cactus-engine";
        snprintf(why, size, "%s has the ABI %u, and this SDK knows %d: %s", path, (unsigned)found, CACTUS_ABI_VERSION, advice);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        *symbols[i].place = find(library, symbols[i].name);
        if (*symbols[i].place == NULL) {
            snprintf(why, size, "%s has no function %s: the library is old, update libcactus", path, symbols[i].name);
            return;
        }
    }
}

static jbyteArray open_library(JNIEnv *env, jbyteArray path, jint abi, const symbol *symbols, size_t count) {
    char why[1024] = "";
    char *given = NULL;
    if (text_in(env, path, &given)) resolve(given != NULL ? given : LIBRARY_NAME, abi, symbols, count, why, sizeof why);
    free(given);
    return *why == 0 ? NULL : bytes_of(env, why);
}

static jint on_load(JavaVM *vm, const char *raw, const JNINativeMethod *methods, size_t count, const callback_method *callbacks,
                    size_t callback_count) {
    JNIEnv *env = NULL;
    machine = vm;
    if ((*vm)->GetEnv(vm, (void **)&env, JNI_VERSION_1_6) != JNI_OK) return JNI_ERR;
#ifndef _WIN32
    if (pthread_key_create(&attached, detach) != 0) return JNI_ERR;
#endif
    jclass class = (*env)->FindClass(env, raw);
    if (class == NULL || (*env)->RegisterNatives(env, class, methods, (jint)count) != 0) return JNI_ERR;
    drop(env, class);
    for (size_t i = 0; i < callback_count; i++) {
        jclass interface = (*env)->FindClass(env, callbacks[i].interface);
        if (interface == NULL) return JNI_ERR;
        *callbacks[i].place = (*env)->GetMethodID(env, interface, "call", callbacks[i].signature);
        /* The class has to stay, or its methods go. */
        if (*callbacks[i].place == NULL || (*env)->NewGlobalRef(env, interface) == NULL) return JNI_ERR;
        drop(env, interface);
    }
    return JNI_VERSION_1_6;
}

#endif
