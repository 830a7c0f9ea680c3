/* Loads a document and reads one value; a damaged one is an error with its line. */
#include <stdio.h>
#include <string.h>
#include <yaml.h>

static int load(const char *text, yaml_parser_t *parser, yaml_document_t *document) {
  yaml_parser_initialize(parser);
  yaml_parser_set_input_string(parser, (const unsigned char *)text, strlen(text));
  return yaml_parser_load(parser, document);
}

int main(void) {
  yaml_parser_t parser;
  yaml_document_t document;
  if (!load("racks: [rack0, rack1]\n", &parser, &document)) return 1;
  yaml_node_t *root = yaml_document_get_root_node(&document);
  yaml_node_t *racks = yaml_document_get_node(&document, root->data.mapping.pairs.start->value);
  yaml_node_t *last = yaml_document_get_node(&document, racks->data.sequence.items.top[-1]);
  if (strcmp((const char *)last->data.scalar.value, "rack1") != 0) return 2;
  yaml_document_delete(&document);
  yaml_parser_delete(&parser);
  if (load("a: 1\nb: [\n", &parser, &document)) return 3;
  if (parser.problem_mark.line < 1) return 4;
  yaml_parser_delete(&parser);
  printf("yaml %s\n", yaml_get_version_string());
  return strcmp(yaml_get_version_string(), "0.2.5") != 0;
}
