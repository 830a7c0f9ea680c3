/* A program with python inside: needs the shared libpython, found by the program's RPATH. */
#include <Python.h>

int main(void) {
  Py_Initialize();
  int status = PyRun_SimpleString("import extension; assert extension.answer() == 42");
  return Py_FinalizeEx() < 0 || status != 0;
}
