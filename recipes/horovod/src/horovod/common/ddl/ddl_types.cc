// Copyright DDL-CE contributors.
//
// Licensed under the Apache License, Version 2.0 (the "License");
// you may not use this file except in compliance with the License.
// You may obtain a copy of the License at
//
//     http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.
// ============================================================================

#include "ddl_types.h"

#include <stdexcept>

namespace horovod {
namespace common {

namespace {

bool IsFloatingPoint(DDL_Type type) { return type != DDL_TYPE_INT32 && type != DDL_TYPE_INT64; }

}  // namespace

bool GetDDLDataType(DataType type, DDL_Type& ddl_type) {
  switch (type) {
    case HOROVOD_FLOAT32:
      ddl_type = DDL_TYPE_FLOAT;
      return true;
    case HOROVOD_FLOAT64:
      ddl_type = DDL_TYPE_DOUBLE;
      return true;
    case HOROVOD_FLOAT16:
      ddl_type = DDL_TYPE_HALF;
      return true;
    case HOROVOD_BFLOAT16:
      ddl_type = DDL_TYPE_BFLOAT16;
      return true;
    case HOROVOD_INT32:
      ddl_type = DDL_TYPE_INT32;
      return true;
    case HOROVOD_INT64:
      ddl_type = DDL_TYPE_INT64;
      return true;
    default:
      return false;
  }
}

void GetDDLReduction(const Response& response, DataType type, int size, DDL_Op& op,
                     double& postscale_factor) {
  DDL_Type ddl_type;
  postscale_factor = response.postscale_factor();
  switch (response.reduce_op()) {
    case ReduceOp::AVERAGE:
      if (GetDDLDataType(type, ddl_type) && IsFloatingPoint(ddl_type)) {
        op = DDL_OP_AVERAGE;
      } else {
        op = DDL_OP_SUM;
        postscale_factor /= size;
      }
      break;
    case ReduceOp::SUM:
      op = DDL_OP_SUM;
      break;
    case ReduceOp::MIN:
      op = DDL_OP_MIN;
      break;
    case ReduceOp::MAX:
      op = DDL_OP_MAX;
      break;
    case ReduceOp::PRODUCT:
      op = DDL_OP_PRODUCT;
      break;
    default:
      throw std::logic_error("Reduction op type not supported.");
  }
}

}  // namespace common
}  // namespace horovod
