/* Reads one line from standard input, remembers it, and compares it with the argument. */
#include <stdio.h>
#include <string.h>
#include <readline/history.h>
#include <readline/readline.h>

int main(int argc, char **argv) {
  char *line = readline("");
  if (argc != 2 || !line || strcmp(line, argv[1]) != 0) return 1;
  add_history(line);
  if (history_length != 1 || strcmp(history_get(history_base)->line, argv[1]) != 0) return 2;
  printf("\nreadline %s\n", rl_library_version);
  return 0;
}
