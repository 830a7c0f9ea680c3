// Unwinds three frames and runs their clean-ups, which is what libgcc_s does. C, since C++ would
// need libstdcxx here, which another recipe makes.
#include <stdlib.h>
#include <unwind.h>

static int cleaned = 0;

static void count(int *frame) {
  (void)frame;
  cleaned++;
}

static _Unwind_Reason_Code at_each_frame(int version, _Unwind_Action actions,
                                         _Unwind_Exception_Class kind,
                                         struct _Unwind_Exception *exception,
                                         struct _Unwind_Context *context, void *argument) {
  (void)version, (void)kind, (void)exception, (void)context, (void)argument;
  if (actions & _UA_END_OF_STACK) exit(cleaned == 3 ? 0 : 2);
  return _URC_NO_REASON;
}

static __attribute__((noinline)) void inner(int depth) {
  int frame __attribute__((cleanup(count))) = depth;
  static struct _Unwind_Exception exception;
  if (depth == 1)
    _Unwind_ForcedUnwind(&exception, at_each_frame, NULL);
  else
    inner(frame - 1);
}

int main(void) {
  inner(3);
  return 1;
}
