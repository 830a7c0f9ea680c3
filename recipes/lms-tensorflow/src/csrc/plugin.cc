// The part of LMS that TensorFlow loads: a graph optimizer that hands each graph to a planner and
// gives back the planner's result. The planner is a function of the process that loaded this
// library (lms_tensorflow/plugin.py). Without a planner, graphs pass unchanged.

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tensorflow/c/experimental/grappler/grappler.h"
#include "tensorflow/c/tf_buffer.h"

#define LMS_EXPORT extern "C" __attribute__((visibility("default")))

// Plans one serialized GraphDef, in the given round of TensorFlow's optimizers, the first being 1.
// It answers by lms_reply(reply, ...), or not at all to leave the graph as it is. TensorFlow calls
// from any thread, and from several at once.
using Planner = void (*)(const void* graph, std::size_t size, int round, void* reply);

namespace {

std::atomic<Planner> planner{nullptr};
std::string device_type = "GPU";

// TensorFlow makes one of these for each graph, and gives it the graph once in each round.
struct Run {
  int rounds = 0;
};

void copy(TF_Buffer* to, const void* data, std::size_t size) {
  void* own = std::malloc(size);
  if (own == nullptr) return;  // an empty graph: TensorFlow keeps the one that it has
  std::memcpy(own, data, size);
  to->data = own;
  to->length = size;
  to->data_deallocator = [](void* memory, std::size_t) { std::free(memory); };
}

void optimize(void* run, const TF_Buffer* graph, const TF_GrapplerItem*, TF_Buffer* optimized,
              TF_Status*) {
  const int round = ++static_cast<Run*>(run)->rounds;
  if (const Planner plan = planner.load()) plan(graph->data, graph->length, round, optimized);
  if (optimized->data == nullptr) copy(optimized, graph->data, graph->length);
}

}  // namespace

// Before TensorFlow loads the plugin: whose graphs it gets. "CPU" serves where there is no GPU.
LMS_EXPORT void lms_set_device_type(const char* type) { device_type = type; }

LMS_EXPORT void lms_set_planner(Planner plan) { planner = plan; }

LMS_EXPORT void lms_reply(void* reply, const void* graph, std::size_t size) {
  copy(static_cast<TF_Buffer*>(reply), graph, size);
}

LMS_EXPORT void TF_InitGraph(TP_OptimizerRegistrationParams* params, TF_Status*) {
  params->struct_size = TP_OPTIMIZER_REGISTRATION_PARAMS_STRUCT_SIZE;
  params->optimizer_configs->struct_size = TP_OPTIMIZER_CONFIGS_STRUCT_SIZE;
  params->optimizer->struct_size = TP_OPTIMIZER_STRUCT_SIZE;
  params->device_type = device_type.c_str();
  params->optimizer->create_func = [] { return static_cast<void*>(new Run); };
  params->optimizer->optimize_func = optimize;
  params->optimizer->destroy_func = [](void* run) { delete static_cast<Run*>(run); };
}
