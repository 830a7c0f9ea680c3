/* libddl_pack: DDL's second library, for programs that link it by name. See CMakeLists.txt. */
__attribute__((visibility("default"))) const char ddl_pack_version[] = "0.1.0";
