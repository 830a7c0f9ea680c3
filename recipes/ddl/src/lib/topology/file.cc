#include "topology/file.h"

#include <yaml.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>

#include "base/error.h"

namespace ddl {
namespace {

constexpr char kKeys[] =
    "a node has 'host' or 'children', and may have 'name', 'bandwidth' (Gbit/s), 'latency' (us) "
    "and, if it is a host, 'sockets'";
constexpr int kMaxDepth = 16;  // no cluster is deeper
constexpr long kMaxRange = 1'000'000;
constexpr int kMaxSockets = 1024;

class Document {
 public:
  Document(const std::string& text, const std::string& source) : source_(source) {
    std::unique_ptr<yaml_parser_t, void (*)(yaml_parser_t*)> parser(new yaml_parser_t,
                                                                    [](yaml_parser_t* p) {
                                                                      yaml_parser_delete(p);
                                                                      delete p;
                                                                    });
    if (yaml_parser_initialize(parser.get()) == 0) fail(DDL_ERROR_SYSTEM, "out of memory");
    yaml_parser_set_input_string(parser.get(), reinterpret_cast<const unsigned char*>(text.data()),
                                 text.size());
    if (yaml_parser_load(parser.get(), &document_) == 0) {
      fail(DDL_ERROR_ARGUMENT, source_, ":", parser->problem_mark.line + 1,
           ": not YAML: ", parser->problem == nullptr ? "unreadable" : parser->problem);
    }
  }
  ~Document() { yaml_document_delete(&document_); }
  Document(const Document&) = delete;
  Document& operator=(const Document&) = delete;

  std::vector<Node> root() {
    const yaml_node_t* top = yaml_document_get_root_node(&document_);
    if (top == nullptr) fail(DDL_ERROR_ARGUMENT, source_, ": the file is empty; ", kKeys);
    return read_node(*top, 0);
  }

 private:
  template <class... Parts>
  [[noreturn]] void reject(const yaml_node_t& at, const Parts&... parts) const {
    fail(DDL_ERROR_ARGUMENT, source_, ":", at.start_mark.line + 1, ": ", parts...);
  }

  const yaml_node_t& get(int id) { return *yaml_document_get_node(&document_, id); }

  std::string text_of(const yaml_node_t& node, const char* key) const {
    if (node.type != YAML_SCALAR_NODE || node.data.scalar.length == 0) {
      reject(node, "'", key, "' must be a text or a number");
    }
    return {reinterpret_cast<const char*>(node.data.scalar.value), node.data.scalar.length};
  }

  double number_of(const yaml_node_t& node, const char* key, const char* unit) const {
    const std::string text = text_of(node, key);
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (*end != '\0' || !std::isfinite(value) || value <= 0) {
      reject(node, "'", key, "' must be a number of ", unit, " above 0, not '", text, "'");
    }
    return value;
  }

  int sockets_of(const yaml_node_t& node) const {
    const std::string text = text_of(node, "sockets");
    char* end = nullptr;
    const long value = std::strtol(text.c_str(), &end, 10);
    if (*end != '\0' || value < 1 || value > kMaxSockets) {
      reject(node, "'sockets' must be a whole number from 1 to ", kMaxSockets, ", not '", text,
             "'");
    }
    return static_cast<int>(value);
  }

  // Makes one node, or several where 'host' is a range.
  std::vector<Node> read_node(const yaml_node_t& yaml, int depth) {
    if (yaml.type != YAML_MAPPING_NODE) reject(yaml, "expected a node; ", kKeys);
    if (depth > kMaxDepth) reject(yaml, "nodes are nested more than ", kMaxDepth, " deep");
    Node node;
    std::string host;
    std::set<std::string> seen;
    const yaml_node_t* children = nullptr;
    for (const auto* pair = yaml.data.mapping.pairs.start; pair < yaml.data.mapping.pairs.top;
         ++pair) {
      const yaml_node_t& value = get(pair->value);
      const std::string key = text_of(get(pair->key), "a key");
      if (!seen.insert(key).second) reject(get(pair->key), "'", key, "' is given twice");
      if (key == "name") {
        node.name = text_of(value, "name");
      } else if (key == "host") {
        host = text_of(value, "host");
      } else if (key == "bandwidth") {
        node.up.bandwidth = number_of(value, "bandwidth", "Gbit/s") * 1e9 / 8;
      } else if (key == "latency") {
        node.up.latency = number_of(value, "latency", "microseconds") * 1e-6;
      } else if (key == "sockets") {
        node.sockets = sockets_of(value);
      } else if (key == "children") {
        children = &value;
      } else {
        reject(get(pair->key), "unknown key '", key, "'; ", kKeys);
      }
    }
    if (host.empty() == (children == nullptr)) {
      reject(yaml, host.empty() ? "neither 'host' nor 'children'" : "both 'host' and 'children'",
             "; ", kKeys);
    }
    if (children == nullptr) return read_hosts(yaml, node, host);
    if (node.sockets > 0) reject(yaml, "'sockets' belongs to a 'host'; ", kKeys);
    if (children->type != YAML_SEQUENCE_NODE ||
        children->data.sequence.items.start == children->data.sequence.items.top) {
      reject(*children, "'children' must be a list of one node or more");
    }
    for (const auto* item = children->data.sequence.items.start;
         item < children->data.sequence.items.top; ++item) {
      for (Node& child : read_node(get(*item), depth + 1)) {
        node.children.push_back(std::move(child));
      }
    }
    if (node.name.empty()) node.name = depth == 0 ? "cluster" : "group";
    return {node};
  }

  std::vector<Node> read_hosts(const yaml_node_t& yaml, const Node& like, const std::string& text) {
    std::vector<Node> hosts;
    for (const std::string& name : expand(yaml, text)) {
      if (!hosts_.insert(name).second) reject(yaml, "host '", name, "' stands in the file twice");
      hosts.push_back(like);
      hosts.back().name = name;
    }
    return hosts;
  }

  // "node[01-18]" and "node[1-4].site.org"; a name without brackets stands for itself.
  std::vector<std::string> expand(const yaml_node_t& yaml, const std::string& text) const {
    const std::size_t open = text.find('[');
    if (open == std::string::npos) return {text};
    const std::size_t close = text.find(']', open);
    const std::size_t dash = text.find('-', open);
    const auto digits = [&](std::size_t begin, std::size_t end) {
      std::string part = text.substr(begin, end - begin);
      const bool is_number = !part.empty() && part.size() < 10 &&
                             part.find_first_not_of("0123456789") == std::string::npos;
      if (!is_number) reject(yaml, "host '", text, "': a range is written node[01-18]");
      return part;
    };
    if (close == std::string::npos || dash == std::string::npos || dash > close ||
        text.find('[', close) != std::string::npos) {
      reject(yaml, "host '", text, "': a range is written node[01-18]");
    }
    const std::string first = digits(open + 1, dash);
    const std::string last = digits(dash + 1, close);
    const long from = std::stol(first);
    const long to = std::stol(last);
    if (to < from || to - from >= kMaxRange) {
      reject(yaml, "host '", text, "': the range is empty or has over ", kMaxRange, " hosts");
    }
    std::vector<std::string> names;
    for (long i = from; i <= to; ++i) {
      std::string number = std::to_string(i);
      if (number.size() < first.size()) number.insert(0, first.size() - number.size(), '0');
      names.push_back(text.substr(0, open) + number + text.substr(close + 1));
    }
    return names;
  }

  std::string source_;
  yaml_document_t document_;
  std::set<std::string> hosts_;
};

void number_hosts(Node* node, int* next, std::map<std::string, int>* index_of) {
  if (node->is_host()) {
    node->host = (*next)++;
    index_of->emplace(node->name, node->host);
  }
  for (Node& child : node->children) number_hosts(&child, next, index_of);
}

}  // namespace

Node parse_topology(const std::string& text, const std::string& source) {
  std::vector<Node> top = Document(text, source).root();
  if (top.size() == 1) return std::move(top.front());
  Node root;
  root.name = "cluster";
  root.children = std::move(top);
  return root;
}

Node assign_hosts(const Node& tree, const std::vector<std::string>& host_names,
                  const std::string& source) {
  Node numbered = tree;
  int in_file = 0;
  std::map<std::string, int> index_of;
  number_hosts(&numbered, &in_file, &index_of);
  std::vector<int> new_index(in_file, -1);
  for (std::size_t i = 0; i < host_names.size(); ++i) {
    const std::string& name = host_names[i];
    auto found = index_of.find(name);
    if (found == index_of.end()) found = index_of.find(name.substr(0, name.find('.')));
    if (found == index_of.end()) {
      fail(DDL_ERROR_ARGUMENT, source, ": host '", name,
           "' of this job is not in the file; add it under its rack, or leave -topology out");
    }
    if (new_index[found->second] >= 0) {
      fail(DDL_ERROR_ARGUMENT, source, ": two hosts of this job are called '", name, "'");
    }
    new_index[found->second] = static_cast<int>(i);
  }
  return select_hosts(numbered, new_index);
}

}  // namespace ddl
