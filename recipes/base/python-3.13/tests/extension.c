/* The smallest extension module. */
#include <Python.h>

static PyObject *answer(PyObject *self, PyObject *none) {
  (void)self, (void)none;
  return PyLong_FromLong(42);
}

static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "extension", NULL, -1, methods,
                             NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_extension(void) { return PyModule_Create(&module); }
