/* A call out (pow) and a call back in (a closure), the two things that ctypes does. */
#include <ffi.h>
#include <math.h>
#include <stdio.h>

static void add(ffi_cif *cif, void *result, void **arguments, void *user) {
  (void)cif;
  *(ffi_sarg *)result = *(int *)arguments[0] + *(int *)user;
}

int main(void) {
  ffi_cif cif;
  ffi_type *doubles[] = {&ffi_type_double, &ffi_type_double};
  double base = 2, exponent = 10, power = 0;
  void *values[] = {&base, &exponent};
  if (ffi_prep_cif(&cif, FFI_DEFAULT_ABI, 2, &ffi_type_double, doubles) != FFI_OK) return 1;
  ffi_call(&cif, FFI_FN(pow), &power, values);
  if (power != 1024) return 2;

  ffi_cif back;
  ffi_type *ints[] = {&ffi_type_sint};
  void *code = NULL;
  int offset = 40;
  ffi_closure *closure = ffi_closure_alloc(sizeof *closure, &code);
  if (!closure || ffi_prep_cif(&back, FFI_DEFAULT_ABI, 1, &ffi_type_sint, ints) != FFI_OK)
    return 3;
  if (ffi_prep_closure_loc(closure, &back, add, &offset, code) != FFI_OK) return 4;
  int sum = ((int (*)(int))code)(2);
  ffi_closure_free(closure);
  printf("libffi: pow -> %g, closure -> %d\n", power, sum);
  return sum == 42 ? 0 : 5;
}
