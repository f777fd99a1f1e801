"""Conan 2 package of libcactus: `conan create sdks/cpp`. It takes a Rust toolchain, and builds what scripts/install_c.sh builds."""

import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.files import copy, load


# What may be left out, with the feature of the library that it is.
FEATURES = {"store": "store", "policies": "cloud", "forms": "forms", "speech": "speech", "pictures": "pictures", "search": "search", "graphs": "graphs"}


class CactusConan(ConanFile):
    name = "cactus"
    license = "MIT OR Apache-2.0"
    description = "AI models on this machine: text, speech, vectors, in C and C++"
    topics = ("llm", "inference", "speech", "embeddings")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    # Without `store` the library loads bundles alone, and has no network code; `policies` hand over to others. The rest is named as the features.
    options = {"shared": [True, False], **{name: [True, False] for name in FEATURES}}
    default_options = {"shared": True, **{name: True for name in FEATURES}}

    @property
    def _root(self):
        return os.path.join(self.recipe_folder, os.pardir, os.pardir)

    def set_version(self):
        manifest = load(self, os.path.join(self._root, "Cargo.toml"))
        self.version = self.version or re.search(r'^version = "(.+)"', manifest, re.MULTILINE).group(1)

    def export_sources(self):
        root = self._root
        for pattern in ("Cargo.toml", "Cargo.lock", "rust-toolchain.toml", "LICENSE-*"):
            copy(self, pattern, root, self.export_sources_folder)
        for folder in ("crates", "xtask", "scripts"):
            copy(self, "*", os.path.join(root, folder), os.path.join(self.export_sources_folder, folder))

    def validate(self):
        if self.settings.os not in ("Linux", "Macos"):
            raise ConanInvalidConfiguration("libcactus is built on Linux, and perhaps on macOS; nobody has tried other systems")

    def package_id(self):
        # C crosses the border: the version of the C++ compiler does not matter.
        del self.info.settings.compiler

    def build(self):
        features = [feature for name, feature in FEATURES.items() if getattr(self.options, name)]
        profile = "dev" if self.settings.build_type == "Debug" else "dist"
        prefix = os.path.join(self.build_folder, "prefix")
        self.run(f'CACTUS_FEATURES="{",".join(features)}" CACTUS_PROFILE={profile} scripts/install_c.sh "{prefix}"')

    def package(self):
        prefix = os.path.join(self.build_folder, "prefix")
        copy(self, "LICENSE-*", self.source_folder, os.path.join(self.package_folder, "licenses"))
        copy(self, "*", os.path.join(prefix, "include"), os.path.join(self.package_folder, "include"))
        pattern = "libcactus.a" if not self.options.shared else "libcactus.*"
        for found in copy(self, pattern, os.path.join(prefix, "lib"), os.path.join(self.package_folder, "lib")):
            if self.options.shared and found.endswith(".a"):
                os.unlink(found)

    def package_info(self):
        self.cpp_info.libs = ["cactus"]
        self.cpp_info.set_property("cmake_file_name", "Cactus")
        self.cpp_info.set_property("cmake_target_name", "Cactus::cactus" if self.options.shared else "Cactus::cactus_static")
        self.cpp_info.set_property("pkg_config_name", "cactus")
        if not self.options.shared:
            self.cpp_info.system_libs = ["pthread", "dl", "m"] if self.settings.os == "Linux" else ["iconv"]
            if self.settings.os == "Macos":
                self.cpp_info.frameworks = ["Security", "CoreFoundation", "SystemConfiguration"]
