# SPDX-License-Identifier: MIT
"""The libraries for Conan 2, and the command with -o command=True."""
from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, get
from conan.tools.gnu import PkgConfigDeps


class Libattn(ConanFile):
    name = "libattn"
    version = "@VERSION@"
    description = "Attention mechanisms, forward and backward, on a CPU"
    homepage = "@HOME@"
    url = homepage
    license = "MIT"
    topics = ("attention", "transformer", "deep-learning")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "fPIC": [True, False], "io": [True, False], "command": [True, False]}
    default_options = {"shared": False, "fPIC": True, "io": True, "command": False}
    implements = ["auto_shared_fpic"]
    languages = "C"

    def configure(self):
        if not self.options.io:
            self.options.command = False

    def requirements(self):
        if self.options.io:
            self.requires("cjson/[>=1.7.14 <2]")
            self.requires("libzip/[>=1.7.3 <2]")
        if self.options.command:
            self.requires("libpng/[>=1.6 <2]")

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("libattn has been tested on Linux only")

    def layout(self):
        cmake_layout(self, src_folder="src")

    def source(self):
        get(self, "@URL@", sha256="@SHA256@", strip_root=True)

    def generate(self):
        tools = CMakeToolchain(self)
        tools.variables.update({"ATTN_TESTS": False, "ATTN_IO": bool(self.options.io), "ATTN_LAYERS": bool(self.options.io),
                                "ATTN_CLI": bool(self.options.command)})
        tools.generate()
        PkgConfigDeps(self).generate()
        CMakeDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "LICENSE", self.source_folder, self.package_folder + "/licenses")
        CMake(self).install()

    def package_info(self):
        # CMake uses the installed package; the rest is for other build systems.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["lib/cmake/libattn"]
        self.cpp_info.components["core"].libs = ["attn"]
        self.cpp_info.components["core"].system_libs = ["m", "pthread"]
        self.cpp_info.components["core"].set_property("pkg_config_name", "libattn")
        if self.options.io:
            self.cpp_info.components["io"].libs = ["attn_io"]
            self.cpp_info.components["io"].requires = ["core", "cjson::cjson", "libzip::libzip"]
            self.cpp_info.components["io"].set_property("pkg_config_name", "libattn_io")
            self.cpp_info.components["layers"].libs = ["attn_layers"]
            self.cpp_info.components["layers"].requires = ["core", "io"]
            self.cpp_info.components["layers"].set_property("pkg_config_name", "libattn_layers")
        if self.options.command:
            self.cpp_info.components["command"].requires = ["libpng::libpng"]
