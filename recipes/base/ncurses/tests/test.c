/* Draws on a screen that is a file, as no terminal is at hand, and reads it back. */
#include <curses.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  FILE *out = tmpfile();
  SCREEN *screen = newterm("xterm-256color", out, stdin);
  char read_back[8] = "";
  if (!screen) return 1;
  mvaddstr(2, 3, "curses");
  refresh();
  mvinnstr(2, 3, read_back, 6);
  endwin();
  delscreen(screen);
  fflush(out);
  long written = ftell(out);
  fclose(out);
  if (strcmp(read_back, "curses") != 0) return 2;
  printf("%s: %ld bytes\n", curses_version(), written);
  return written > 6 ? 0 : 3;
}
