/* Counts elements; rejects broken XML, and the bomb of nested entities that expat guards. */
#include <expat.h>
#include <stdio.h>
#include <string.h>

static void count(void *user, const char *name, const char **attributes) {
  (void)name, (void)attributes;
  ++*(int *)user;
}

static int parse(const char *text, int *elements) {
  XML_Parser parser = XML_ParserCreate(NULL);
  XML_SetUserData(parser, elements);
  XML_SetStartElementHandler(parser, count);
  int status = XML_Parse(parser, text, (int)strlen(text), 1);
  XML_ParserFree(parser);
  return status == XML_STATUS_OK;
}

int main(void) {
  int elements = 0;
  char bomb[4096] = "<!DOCTYPE b [<!ENTITY e0 \"lollollollollollollollol\">";
  for (int i = 1; i < 12; ++i)
    sprintf(bomb + strlen(bomb), "<!ENTITY e%d \"&e%d;&e%d;&e%d;&e%d;&e%d;&e%d;&e%d;&e%d;\">", i,
            i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1);
  strcat(bomb, "]><b>&e11;</b>");
  if (!parse("<a><b/><b/></a>", &elements) || elements != 3) return 1;
  if (parse("<a><b></a>", &elements)) return 2;
  if (parse(bomb, &elements)) return 3;
  puts(XML_ExpatVersion());
  return 0;
}
