# The client, the servers and the tools need these beside dependencies.cmake. Protobuf comes before
# gRPC: Debian 12 ships it without a CMake config, and gRPC's config would otherwise choose how it
# is found.
find_package(Protobuf CONFIG QUIET)
if(NOT Protobuf_FOUND)
  find_package(Protobuf REQUIRED)
endif()
find_package(gRPC CONFIG REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
if(EMBLA_CLIENT_ONLY)
  return()
endif()
find_library(CIVETWEB_LIBRARY civetweb REQUIRED)  # A library of prometheus-cpp.
find_package(CLI11 CONFIG REQUIRED)
find_package(zstd CONFIG REQUIRED)
find_package(ZLIB REQUIRED)
find_package(yaml-cpp CONFIG REQUIRED)

# Newer packages name the zstd and yaml-cpp targets differently.
foreach(candidate zstd::libzstd_shared zstd::libzstd)
  if(TARGET ${candidate} AND NOT TARGET embla_zstd)
    add_library(embla_zstd INTERFACE)
    target_link_libraries(embla_zstd INTERFACE ${candidate})
  endif()
endforeach()
add_library(embla_yaml INTERFACE)
if(TARGET yaml-cpp::yaml-cpp)
  target_link_libraries(embla_yaml INTERFACE yaml-cpp::yaml-cpp)
else()
  target_link_libraries(embla_yaml INTERFACE yaml-cpp)
endif()
