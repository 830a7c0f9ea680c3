/* A query that needs the extensions that people expect: JSON, full text search, maths. */
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

static const char *const sql =
    "create virtual table notes using fts5(text);"
    "insert into notes values ('all reduce'), ('broadcast');"
    "create table answer as select json_extract('{\"n\": 40}', '$.n') + cast(sqrt(4) as int) as n,"
    " (select count(*) from notes where notes match 'reduce') as hits;";

int main(void) {
  sqlite3 *db;
  sqlite3_stmt *query;
  char *error = NULL;
  if (strcmp(sqlite3_libversion(), SQLITE_VERSION) != 0) return 1;
  if (sqlite3_open(":memory:", &db) != SQLITE_OK) return 2;
  if (sqlite3_exec(db, sql, NULL, NULL, &error) != SQLITE_OK) {
    fprintf(stderr, "%s\n", error);
    return 3;
  }
  sqlite3_prepare_v2(db, "select n, hits from answer", -1, &query, NULL);
  if (sqlite3_step(query) != SQLITE_ROW) return 4;
  int n = sqlite3_column_int(query, 0), hits = sqlite3_column_int(query, 1);
  sqlite3_finalize(query);
  sqlite3_close(db);
  printf("sqlite %s: %d, %d\n", sqlite3_libversion(), n, hits);
  return n == 42 && hits == 1 ? 0 : 5;
}
