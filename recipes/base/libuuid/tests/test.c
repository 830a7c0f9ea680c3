/* Two identifiers differ, are of version 4, and survive their text form. */
#include <stdio.h>
#include <uuid/uuid.h>

int main(void) {
  uuid_t one, two, back;
  char text[UUID_STR_LEN];
  uuid_generate_random(one);
  uuid_generate_random(two);
  uuid_unparse_lower(one, text);
  if (uuid_compare(one, two) == 0) return 1;
  if (uuid_parse(text, back) != 0 || uuid_compare(one, back) != 0) return 2;
  if (uuid_type(one) != UUID_TYPE_DCE_RANDOM || text[14] != '4') return 3;
  puts(text);
  return 0;
}
