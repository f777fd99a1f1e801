// React Native's side of the raw layer: an object of JSI that is a `Native` of the TypeScript API.
#ifndef CACTUS_JSI_NATIVE_HPP
#define CACTUS_JSI_NATIVE_HPP

#include <ReactCommon/CallInvoker.h>
#include <jsi/jsi.h>

#include <memory>
#include <string>

namespace cactus::js {

/// The name of the object in the global one.
constexpr const char *GLOBAL = "__cactusNative";

/// Puts the functions of libcactus into the global object, on the thread of JavaScript. `library` is its path; empty where it is linked
/// into the program. Throws `std::runtime_error` where the library cannot be used.
///
/// When the runtime ends, which a reload does while answers are made, nothing of it is touched any more, and what is open is cancelled
/// and closed on another thread.
void install(facebook::jsi::Runtime &runtime, std::shared_ptr<facebook::react::CallInvoker> invoker, const std::string &library);

} // namespace cactus::js

#endif
