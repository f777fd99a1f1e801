// Android: puts the functions into the runtime, and says what the system says of memory. Not built in this repository.

#include "jsi_native.hpp"
#include "library.hpp"

#include <ReactCommon/BindingsInstallerHolder.h>
#include <fbjni/fbjni.h>

namespace {

namespace jni = facebook::jni;
namespace jsi = facebook::jsi;
using facebook::react::BindingsInstallerHolder;

constexpr const char *LIBRARY = "libcactus.so";

struct CactusModule : jni::JavaClass<CactusModule> {
    static constexpr auto kJavaDescriptor = "Lengine/cactus/CactusModule;";

    static void registerNatives() {
        javaClassLocal()->registerNatives({
            makeNativeMethod("getBindingsInstaller", CactusModule::getBindingsInstaller),
            makeNativeMethod("memoryIsShort", CactusModule::memoryIsShort),
        });
    }

    static jni::local_ref<BindingsInstallerHolder::javaobject> getBindingsInstaller(jni::alias_ref<CactusModule>) {
        return BindingsInstallerHolder::newObjectCxxArgs(
            [](jsi::Runtime &runtime, const std::shared_ptr<facebook::react::CallInvoker> &invoker) {
                try {
                    cactus::js::install(runtime, invoker, LIBRARY);
                } catch (const std::exception &error) {
                    throw jsi::JSError(runtime, error.what());
                }
            });
    }

    static void memoryIsShort(jni::alias_ref<CactusModule>) { cactus::js::open_library(LIBRARY).cactus_memory_pressure(); }
};

} // namespace

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *vm, void *) {
    return jni::initialize(vm, [] { CactusModule::registerNatives(); });
}
