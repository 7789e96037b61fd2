# embla_library, embla_program, embla_test, embla_bench: one target per folder, full dependency
# lists. Everyone links the alias embla::<name>, so a typo fails at configure time.

add_library(embla_options INTERFACE)
target_include_directories(embla_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(embla_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wno-unused-parameter -Wno-sign-compare>
  # Sums and products are never fused unless the code says fma (DESIGN: one numerics contract).
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off -fno-omit-frame-pointer>)
if(EMBLA_WERROR)
  target_compile_options(embla_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(embla_options INTERFACE -Wthread-safety)
  # valgrind 3.19 cannot read DWARF 5.
  target_compile_options(embla_options INTERFACE -gdwarf-4)
endif()
if(EMBLA_SANITIZE)
  target_compile_options(embla_options INTERFACE -fsanitize=${EMBLA_SANITIZE} -O1
    -fno-sanitize-recover=all)
  target_link_options(embla_options INTERFACE -fsanitize=${EMBLA_SANITIZE})
endif()

# A source in the build folder that includes nothing but `header`.
function(embla_header_source header source)
  cmake_path(ABSOLUTE_PATH header BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE)
  cmake_path(RELATIVE_PATH header BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE path)
  set(${source} ${PROJECT_BINARY_DIR}/headers/${path}.cc PARENT_SCOPE)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/headers/${path}.cc CONTENT "#include \"${path}\"\n")
endfunction()

# Every header compiles alone, as a part of the build: no test waits for a cold compiler. A source
# includes its own header first (tools/tidy.py), so only a header without a source of its name needs
# an object, without optimisation and debug information. A unity build, where headers are seen
# behind others anyway, has them in target `embla_headers` only: they are a tenth of its time.
add_custom_target(embla_headers)
function(embla_header_objects target)
  add_library(${target} OBJECT ${ARGN})
  target_compile_options(${target} PRIVATE -O0 -g0)
  add_dependencies(embla_headers ${target})
  if(EMBLA_UNITY)
    set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# The objects of a library's headers.
function(embla_headers name)
  cmake_parse_arguments(ARG "" "" "SRCS;HDRS" ${ARGN})
  set(alone "")
  foreach(header ${ARG_HDRS})
    string(REGEX REPLACE "\\.h$" ".cc" source ${header})
    if(NOT source IN_LIST ARG_SRCS)
      embla_header_source(${header} stub)
      list(APPEND alone ${stub})
    endif()
  endforeach()
  if(alone)
    embla_header_objects(embla_${name}_headers ${alone})
    target_link_libraries(embla_${name}_headers PRIVATE embla_${name})
  endif()
endfunction()

# Headers among a test's sources compile alone, too: once, with what the first such test needs.
function(embla_test_headers)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  list(FILTER ARG_SRCS INCLUDE REGEX "\\.h$")
  foreach(header ${ARG_SRCS})
    embla_header_source(${header} stub)
    cmake_path(RELATIVE_PATH stub BASE_DIRECTORY ${PROJECT_BINARY_DIR} OUTPUT_VARIABLE target)
    string(MAKE_C_IDENTIFIER ${target} target)
    if(NOT TARGET ${target})
      embla_header_objects(${target} ${stub})
      target_link_libraries(${target} PRIVATE embla_options ${ARG_DEPS} GTest::gmock)
    endif()
  endforeach()
endfunction()

# The sources of `target` in few, large compilations.
function(embla_unity target)
  if(EMBLA_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON
      UNITY_BUILD_BATCH_SIZE ${EMBLA_UNITY})
    # GCC 12 takes moved variants for uninitialized where much is inlined, sources for headers.
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized -Wno-subobject-linkage>)
  endif()
endfunction()

# embla_library(<name> SRCS ... HDRS ... DEPS ... PRIVATE_DEPS ...)
function(embla_library name)
  cmake_parse_arguments(ARG "" "" "SRCS;HDRS;DEPS;PRIVATE_DEPS" ${ARGN})
  if(ARG_SRCS)
    add_library(embla_${name} STATIC ${ARG_SRCS})
    embla_unity(embla_${name})
    set(scope PUBLIC)
    target_link_libraries(embla_${name} PRIVATE ${ARG_PRIVATE_DEPS})
  else()
    add_library(embla_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(embla::${name} ALIAS embla_${name})
  if(ARG_HDRS)
    target_sources(embla_${name} ${scope}
      FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ARG_HDRS})
  endif()
  target_link_libraries(embla_${name} ${scope} embla_options ${ARG_DEPS})
  if(EMBLA_TESTS)
    embla_headers(${name} SRCS ${ARG_SRCS} HDRS ${ARG_HDRS})
  endif()
endfunction()

# Man page and completion of a program, from what it says of itself, each time that it is linked.
function(embla_pages name section component)
  set(pages ${CMAKE_BINARY_DIR}/pages)
  add_custom_command(TARGET ${name} POST_BUILD
    COMMAND ${EMBLA_PYTHON} ${PROJECT_SOURCE_DIR}/tools/pages.py $<TARGET_FILE:${name}> ${pages}
    VERBATIM)
  install(FILES ${pages}/man/${name}.${section}.gz COMPONENT ${component}
    DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
  install(FILES ${pages}/bash-completion/${name} COMPONENT ${component}
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
endfunction()

# embla_program(<name> SRCS ... DEPS ... [PACKAGE server|cli] [SECTION 1|8]): a binary in
# build/<preset>/bin; installed. PACKAGE: which package has it (cmake/packages.cmake), with a man
# page of that section.
function(embla_program name)
  cmake_parse_arguments(ARG "" "PACKAGE;SECTION" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE embla_options ${ARG_DEPS})
  # Flags are read once: a main file is not worth the time that more takes.
  target_compile_options(${name} PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O1>)
  if(NOT ARG_PACKAGE)
    install(TARGETS ${name} COMPONENT bench)
    return()
  endif()
  install(TARGETS ${name} COMPONENT ${ARG_PACKAGE})
  # A sanitizer's own findings at an end would fail the build; wheels have no pages.
  if(NOT EMBLA_SANITIZE AND NOT EMBLA_PYTHON_PACKAGE)
    embla_pages(${name} ${ARG_SECTION} ${ARG_PACKAGE})
  endif()
endfunction()

add_custom_target(embla_tsan_tests)
# The tests with label `gpu`: what tests/gpu.sh builds.
add_custom_target(embla_gpu_tests)

# Compiling a test takes longer than running it; what it tests is in libraries. GCC collects garbage
# from half a gigabyte on: a tenth of the time, for a fifth more memory.
set(embla_test_options
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<CONFIG:Debug>>>:-O1$<SEMICOLON>-g0>
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=524288>)

# embla_suites(<name> SRCS ... DEPS ...): tests that several programs link, each with another
# implementation of what they test, as objects: compiled once.
function(embla_suites name)
  if(NOT EMBLA_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_library(embla_${name} OBJECT ${ARG_SRCS})
  add_library(embla::${name} ALIAS embla_${name})
  embla_unity(embla_${name})
  target_link_libraries(embla_${name} PUBLIC embla_options ${ARG_DEPS} GTest::gmock)
  target_compile_options(embla_${name} PRIVATE ${embla_test_options})
  embla_test_headers(SRCS ${ARG_SRCS} DEPS ${ARG_DEPS})
endfunction()

# The program of test `name` in build/<preset>/tests, as a target of that name.
function(embla_test_program name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  embla_unity(${name})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE embla_options ${ARG_DEPS})
  target_compile_options(${name} PRIVATE ${embla_test_options})
endfunction()

# Test `name` as a part of the program of its folder, build/<preset>/tests/<folder>_tests: eight
# tests in one compilation take as long as three alone. tests/<name> is a link to it and runs the
# tests of <name>.cc (core/base/testing/test_main.cc).
function(embla_linked_test name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS;LABELS" ${ARGN})
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR}
    OUTPUT_VARIABLE program)
  string(MAKE_C_IDENTIFIER ${program} program)
  if("gpu" IN_LIST ARG_LABELS)
    string(APPEND program _gpu)
  endif()
  string(APPEND program _tests)
  if(NOT TARGET ${program})
    embla_test_program(${program} DEPS embla::test_main)
    set_target_properties(${program} PROPERTIES UNITY_BUILD_BATCH_SIZE 8)
  endif()
  target_sources(${program} PRIVATE ${ARG_SRCS})
  target_link_libraries(${program} PRIVATE ${ARG_DEPS})
  add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/tests/${name} DEPENDS ${program}
    COMMAND ${CMAKE_COMMAND} -E create_symlink ${program} ${CMAKE_BINARY_DIR}/tests/${name}
    VERBATIM)
  add_custom_target(${name} ALL DEPENDS ${CMAKE_BINARY_DIR}/tests/${name})
endfunction()

# embla_test(<name> [SRCS ...] DEPS ... [LABELS ...] [TIMEOUT s] [ALONE])
# One ctest case of GoogleTest. SRCS also name the headers that only tests include. Label `grpc`
# keeps it out of the tsan preset. In a unity build it shares a program with others of its folder,
# unless it has other sources than <name>.cc, includes tests (*_conformance.h), or is said to be
# ALONE.
function(embla_test name)
  if(NOT EMBLA_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "ALONE" "TIMEOUT" "SRCS;DEPS;LABELS" ${ARGN})
  set(others ${ARG_SRCS})
  list(REMOVE_ITEM others ${name}.cc)
  list(FILTER others INCLUDE REGEX "\\.cc$|_conformance\\.h$")
  if(EMBLA_UNITY AND ${name}.cc IN_LIST ARG_SRCS AND NOT others AND NOT ARG_ALONE)
    embla_linked_test(${name} SRCS ${ARG_SRCS} DEPS ${ARG_DEPS} LABELS ${ARG_LABELS})
  else()
    embla_test_program(${name} SRCS ${ARG_SRCS} DEPS ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  endif()
  embla_test_headers(SRCS ${ARG_SRCS} DEPS ${ARG_DEPS})
  add_test(NAME ${name} COMMAND ${CMAKE_BINARY_DIR}/tests/${name}
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}"
    ENVIRONMENT "EMBLA_BIN_DIR=${CMAKE_BINARY_DIR}/bin")
  if(NOT "grpc" IN_LIST ARG_LABELS)
    add_dependencies(embla_tsan_tests ${name})
  endif()
  if("gpu" IN_LIST ARG_LABELS)
    add_dependencies(embla_gpu_tests ${name})
  endif()
endfunction()

# embla_bench(<name> SRCS ... DEPS ...): a Google Benchmark program in build/<preset>/bench.
function(embla_bench name)
  if(NOT EMBLA_BENCHMARKS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
  target_link_libraries(${name} PRIVATE embla_options ${ARG_DEPS} benchmark::benchmark)
endfunction()

# clang-tidy over the tree, by the compile commands of this build: cmake --build --preset clang
# --target clang_tidy. Minutes to hours, so no build does it by itself.
find_program(EMBLA_RUN_CLANG_TIDY run-clang-tidy)
if(EMBLA_RUN_CLANG_TIDY AND NOT TARGET clang_tidy)
  add_custom_target(clang_tidy
    COMMAND ${EMBLA_RUN_CLANG_TIDY} -quiet -p ${CMAKE_BINARY_DIR}
      "^${PROJECT_SOURCE_DIR}/(core|kernels|server|client|tools|bench)/"
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} VERBATIM)
endif()
