# Exports LSL::lsl, the target that programs written for liblsl link to.
if(TARGET LSL::lsl)
    return()
endif()

get_filename_component(_lsl_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
add_library(LSL::lsl SHARED IMPORTED)
set_target_properties(
    LSL::lsl
    PROPERTIES
        IMPORTED_LOCATION "${_lsl_prefix}/lib/liblsl.so.2"
        IMPORTED_SONAME "liblsl.so.2"
        INTERFACE_INCLUDE_DIRECTORIES "${_lsl_prefix}/include"
)
unset(_lsl_prefix)
