# Everything Attend is built with, found here and nowhere else. All are Debian packages; nothing is downloaded.
# doc/DEPENDENCIES.md says why each was chosen.
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)
find_package(LibLZMA REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(highway REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(sentencepiece REQUIRED IMPORTED_TARGET sentencepiece)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(json REQUIRED IMPORTED_TARGET nlohmann_json)
pkg_check_modules(tomlplusplus REQUIRED IMPORTED_TARGET tomlplusplus)
pkg_check_modules(eigen REQUIRED IMPORTED_TARGET eigen3)
find_package(Boost 1.74 REQUIRED)  # headers: Beast and Asio
pkg_check_modules(cli11 REQUIRED IMPORTED_TARGET CLI11)
