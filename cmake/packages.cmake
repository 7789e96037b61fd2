# Debian packages, which deploy/package.sh makes: embla-server, embla-cli and libembla-dev. What
# they hold is installed by the components server and units, cli, and embla_client.
set(debian ${PROJECT_SOURCE_DIR}/deploy/debian)
set(systemd ${PROJECT_SOURCE_DIR}/deploy/systemd)

# Outside of every prefix, so only packages have these.
install(FILES ${PROJECT_SOURCE_DIR}/deploy/config/coordinator.conf
  ${PROJECT_SOURCE_DIR}/deploy/config/shard.conf
  COMPONENT units EXCLUDE_FROM_ALL DESTINATION /etc/embla)
install(FILES ${systemd}/embla-coordinator.service ${systemd}/embla-shard@.service
  COMPONENT units EXCLUDE_FROM_ALL DESTINATION lib/systemd/system)
install(FILES ${systemd}/gpu.conf COMPONENT units EXCLUDE_FROM_ALL
  DESTINATION share/doc/embla-server/examples)
# deploy/package.sh writes changelog and SBOM there.
foreach(package units:embla-server cli:embla-cli embla_client:libembla-dev)
  string(REGEX MATCH "(.*):(.*)" package ${package})
  install(FILES ${debian}/copyright ${PROJECT_SOURCE_DIR}/NOTICE
    COMPONENT ${CMAKE_MATCH_1} EXCLUDE_FROM_ALL DESTINATION share/doc/${CMAKE_MATCH_2})
  install(DIRECTORY ${PROJECT_BINARY_DIR}/packages/documents/
    COMPONENT ${CMAKE_MATCH_1} EXCLUDE_FROM_ALL DESTINATION share/doc/${CMAKE_MATCH_2} OPTIONAL)
endforeach()
# Only what is packed has to be built, not all of the tree.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME embla)
set(CPACK_PACKAGE_VENDOR Embla)
set(CPACK_PACKAGE_CONTACT "The Embla maintainers <maintainers@embla.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL server units cli embla_client)
set(CPACK_COMPONENT_SERVER_GROUP server)
set(CPACK_COMPONENT_UNITS_GROUP server)
set(CPACK_COMPONENT_CLI_GROUP cli)
set(CPACK_COMPONENT_EMBLA_CLIENT_GROUP dev)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

set(CPACK_DEBIAN_SERVER_PACKAGE_NAME embla-server)
set(CPACK_DEBIAN_SERVER_PACKAGE_SECTION database)
set(CPACK_DEBIAN_SERVER_PACKAGE_DEPENDS adduser)
set(CPACK_DEBIAN_SERVER_PACKAGE_RECOMMENDS embla-cli)
set(CPACK_DEBIAN_SERVER_PACKAGE_CONTROL_EXTRA
  "${debian}/conffiles;${debian}/postinst;${debian}/postrm")
set(CPACK_DEBIAN_SERVER_DESCRIPTION
  "The servers: embla-coordinator plans where embedding tables live, embla-shard holds and serves
their rows. The package makes a user for them, and starts nothing.")

set(CPACK_DEBIAN_CLI_PACKAGE_NAME embla-cli)
set(CPACK_DEBIAN_CLI_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_CLI_DESCRIPTION
  "The command line: embla creates, moves, shows and checks tables, nodes and jobs of a cluster;
embla-train trains factorization models through one.")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME libembla-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libabsl-dev, libgrpc++-dev, libhwy-dev, libprotobuf-dev, \
libssl-dev, prometheus-cpp-dev")
set(CPACK_DEBIAN_DEV_DESCRIPTION
  "The C++ client: headers, static libraries and a CMake package for find_package(embla).")
include(CPack)
