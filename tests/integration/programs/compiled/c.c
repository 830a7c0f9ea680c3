// pow has a younger version in newer C libraries.
#include <Python.h>
#include <math.h>

static PyObject *power(PyObject *self, PyObject *args) {
  double base, exponent;
  (void)self;
  if (!PyArg_ParseTuple(args, "dd", &base, &exponent)) return NULL;
  return PyFloat_FromDouble(pow(base, exponent));
}

static PyMethodDef methods[] = {{"power", power, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "compiled_c", NULL, -1, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit_compiled_c(void) { return PyModule_Create(&module); }
