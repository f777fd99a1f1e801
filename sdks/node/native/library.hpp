// Finds the library and its functions when it is needed, so that one addon fits any library with its ABI.
#ifndef CACTUS_JS_LIBRARY_HPP
#define CACTUS_JS_LIBRARY_HPP

#include "symbols.hpp"

#include <string>

namespace cactus::js {

/// The functions of the library at `path`, or of what is linked into the program where that is empty. It stays loaded.
///
/// Throws `std::runtime_error` where it cannot be loaded, lacks a function, or has another ABI.
const Symbols &open_library(const std::string &path);

/// Keeps the code of this addon where it is until the process ends, as its threads may run it.
void stay_loaded();

} // namespace cactus::js

#endif
