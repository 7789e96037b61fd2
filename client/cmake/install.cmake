# `cmake --install <build> --component embla_client`: headers, archives and embla-config.cmake.
# Only embla::client is visible to users; the rooms under it are archives it links.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(embla_client_archives)
foreach(room client client_transport client_route metrics socket wire tls certificates rows plan
    kernels proto base)
  list(APPEND embla_client_archives embla_${room})
  install(TARGETS embla_${room} COMPONENT embla_client
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endforeach()
install(DIRECTORY ${CMAKE_CURRENT_LIST_DIR}/../include/ COMPONENT embla_client
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
# The messages of the admin API.
install(DIRECTORY ${CMAKE_BINARY_DIR}/proto/gen/ COMPONENT embla_client
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.pb.h" PATTERN "*.grpc.pb.h" EXCLUDE)

set(embla_config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/embla)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/embla-config.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/embla-config.cmake
  INSTALL_DESTINATION ${embla_config_dir}
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/embla-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/embla-config.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/embla-config-version.cmake
  COMPONENT embla_client DESTINATION ${embla_config_dir})
