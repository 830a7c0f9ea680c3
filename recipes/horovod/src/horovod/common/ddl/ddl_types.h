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

#ifndef HOROVOD_DDL_TYPES_H
#define HOROVOD_DDL_TYPES_H

#include <ddl/ddl.h>

#include "../common.h"
#include "../message.h"

namespace horovod {
namespace common {

// Sets `ddl_type` and returns true if the library reduces elements of `type`.
bool GetDDLDataType(DataType type, DDL_Type& ddl_type);

// How the library carries out `response`: sets `op`, and `postscale_factor` to
// what remains to be multiplied with afterwards. The library averages floating
// point numbers itself, which rounds once; integers are summed and scaled, as
// in Horovod's other operations. Throws std::logic_error for another operation.
void GetDDLReduction(const Response& response, DataType type, int size, DDL_Op& op,
                     double& postscale_factor);

}  // namespace common
}  // namespace horovod

#endif  // HOROVOD_DDL_TYPES_H
