#include "library.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#else
#include <dlfcn.h>
#endif

namespace cactus::js {

namespace {

#ifdef _WIN32
void *load(const std::string &path) {
    HMODULE module = path.empty() ? GetModuleHandleA(nullptr) : LoadLibraryA(path.c_str());
    if (module == nullptr) throw std::runtime_error("cannot load `" + path + "`: error " + std::to_string(GetLastError()));
    return module;
}

void *find(void *module, const char *name) {
    return reinterpret_cast<void *>(GetProcAddress(static_cast<HMODULE>(module), name));
}
#else
void *load(const std::string &path) {
    void *module = dlopen(path.empty() ? nullptr : path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) throw std::runtime_error(dlerror());
    return module;
}

void *find(void *module, const char *name) { return dlsym(module, name); }
#endif

void compare(uint32_t theirs, const std::string &shown) {
    if (theirs == CACTUS_ABI_VERSION) return;
    const bool library_is_old = theirs < CACTUS_ABI_VERSION;
    throw std::runtime_error(shown + " has the ABI " + std::to_string(theirs) + ", this package needs " +
                             std::to_string(CACTUS_ABI_VERSION) + ": the " + (library_is_old ? "library" : "package") +
                             " is old, update it");
}

std::unique_ptr<Symbols> resolve(const std::string &path) {
    const std::string shown = path.empty() ? std::string("the program") : "`" + path + "`";
#ifdef CACTUS_LINKED
    // A static library: what nobody names would not be linked.
    if (path.empty()) {
        auto linked = std::make_unique<Symbols>();
        link_symbols(*linked);
        compare(linked->cactus_abi_version(), shown);
        return linked;
    }
#endif
    void *module = load(path);
    auto *abi_version = reinterpret_cast<decltype(&::cactus_abi_version)>(find(module, "cactus_abi_version"));
    if (abi_version == nullptr) throw std::runtime_error(shown + " is not libcactus: it has no function `cactus_abi_version`");
    compare(abi_version(), shown);
    auto symbols = std::make_unique<Symbols>();
    for_each_symbol(*symbols, [&](const char *name, void **place) {
        *place = find(module, name);
        if (*place == nullptr) throw std::runtime_error(shown + " has no function `" + name + "`: the library is old, update it");
    });
    return symbols;
}

} // namespace

const Symbols &open_library(const std::string &path) {
    static std::mutex mutex;
    // Never destroyed: threads may be inside the library when the process ends.
    static auto *opened = new std::map<std::string, std::unique_ptr<Symbols>>();
    std::lock_guard<std::mutex> lock(mutex);
    auto &place = (*opened)[path];
    if (!place) {
        try {
            place = resolve(path);
        } catch (...) {
            opened->erase(path);
            throw;
        }
    }
    return *place;
}

void stay_loaded() {
#ifndef _WIN32
    Dl_info info{};
    if (dladdr(reinterpret_cast<void *>(&stay_loaded), &info) != 0) {
        // Never closed, on purpose.
        (void)dlopen(info.dli_fname, RTLD_NOW | RTLD_LOCAL);
    }
#endif
}

} // namespace cactus::js
