// Threads, an exception and a stream: each needs the C++ library.
#include <Python.h>

#include <future>
#include <sstream>
#include <stdexcept>

static PyObject *words(PyObject *, PyObject *argument) {
  long number = PyLong_AsLong(argument);
  auto later = std::async(std::launch::async, [number] {
    if (number < 0) throw std::out_of_range("below zero");
    std::ostringstream text;
    text << "number " << number;
    return text.str();
  });
  try {
    return PyUnicode_FromString(later.get().c_str());
  } catch (const std::out_of_range &error) {
    return PyUnicode_FromString(error.what());
  }
}

static PyMethodDef methods[] = {{"words", words, METH_O, nullptr}, {nullptr, nullptr, 0, nullptr}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT,
                                    "compiled_cxx",
                                    nullptr,
                                    -1,
                                    methods,
                                    nullptr,
                                    nullptr,
                                    nullptr,
                                    nullptr};
PyMODINIT_FUNC PyInit_compiled_cxx(void) { return PyModule_Create(&module); }
